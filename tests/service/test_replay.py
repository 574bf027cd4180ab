"""The verdict on two answers: what is compared, where they part first, and what is said to explain it."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from service.replay import judge, record_of
from service.replay_difference import Difference, first_difference

Edit = Callable[[dict[str, Any]], Any]


def entry(token_id: int, logprob: float, *rivals: float) -> dict[str, Any]:
    top = [{"token_id": rank, "text": "r", "bytes": [114], "logprob": rival} for rank, rival in enumerate(rivals)]
    return {"token_id": token_id, "text": "t", "bytes": [116], "logprob": logprob, "top": top}


def text_of(*token_ids: int, index: int | None = None, finish_reason: str = "length") -> dict[str, Any]:
    return {
        **({} if index is None else {"index": index}),
        "text": "".join(chr(96 + token_id) for token_id in token_ids),
        "token_ids": list(token_ids),
        "logprobs": [entry(token_id, -0.25 * token_id, -0.1, -2.5) for token_id in token_ids],
        "finish_reason": finish_reason,
    }


def answer(*texts: dict[str, Any]) -> dict[str, Any]:
    chosen = texts or (text_of(1, 2, 3),)
    return {
        "id": "a",
        "model": "tiny",
        **({"choices": list(chosen)} if len(chosen) > 1 else chosen[0]),
        "prompt_logprobs": [None, entry(4, -1.5, -0.5)],
        "usage": {
            "prompt_tokens": 2,
            "generated_tokens": sum(len(text["token_ids"]) for text in chosen),
            "cached_tokens": 0,
            "resumed_tokens": 0,
        },
        "seed": 5,
        "parameters": {"temperature": 0.2, "stop": [], "logprobs": {"top": 2}, "session_id": None, "use_cache": True},
        "cache": {"reused_tokens": 0, "reason": "cold"},
        "timings": {"queue_s": 0.1},
        "reproducibility": {"level": "bitwise", "fingerprint": "fp", "version": "1"},
    }


def changed(edit: Edit, whole: dict[str, Any] | None = None) -> dict[str, Any]:
    other = copy.deepcopy(answer() if whole is None else whole)
    edit(other)
    return other


def test_an_answer_equals_itself() -> None:
    assert None is first_difference(answer(), answer())


def test_an_answer_equals_itself_after_it_was_written_and_read() -> None:
    numbers = [math.log(n) for n in range(1, 50)]
    whole = changed(lambda a: a.update(prompt_logprobs=[None, entry(1, -0.1, *numbers)]))

    assert None is first_difference(json.loads(json.dumps(whole)), whole)


IGNORED: dict[str, Edit] = {
    "that it was resumed": lambda a: a["usage"].update(generated_tokens=1, resumed_tokens=2),
    "its name": lambda a: a.update(id="b"),
    "its timings": lambda a: a["timings"].update(queue_s=9.0),
    "the cache's work": lambda a: a["cache"].update(reused_tokens=7, reason="prefix"),
    "cached tokens": lambda a: a["usage"].update(cached_tokens=1),
    "how a token is written": lambda a: a["logprobs"][0].update(text="x", bytes=[120]),
    "what a newer server adds": lambda a: a.update(novelty=1),
}


@pytest.mark.parametrize("name", IGNORED)
def test_it_does_not_matter(name: str) -> None:
    assert judge(answer(), changed(IGNORED[name])).equal


FOUND: dict[str, tuple[Edit, Difference]] = {
    "a token": (lambda a: a["token_ids"].__setitem__(1, 9), Difference("token_ids", 0, 1, 2, 9)),
    "a token too few": (lambda a: a["token_ids"].pop(), Difference("token_ids", 0, 2, 3, None)),
    "a token too many": (lambda a: a["token_ids"].append(4), Difference("token_ids", 0, 3, None, 4)),
    "the text": (lambda a: a.update(text="abX"), Difference("text", 0, 2, "c", "X")),
    "the end": (lambda a: a.update(finish_reason="eos"), Difference("finish_reason", 0, None, "length", "eos")),
    "a log-probability": (
        lambda a: a["logprobs"][1].update(logprob=math.nextafter(-0.5, 0)),
        Difference(
            "logprobs",
            0,
            1,
            {"token_id": 2, "logprob": -0.5},
            {"token_id": 2, "logprob": math.nextafter(-0.5, 0)},
        ),
    ),
    "a rival": (
        lambda a: a["logprobs"][2]["top"][1].update(token_id=8),
        Difference("logprobs", 0, 2, {"token_id": 1, "logprob": -2.5}, {"token_id": 8, "logprob": -2.5}),
    ),
    "a rival too few": (
        lambda a: a["logprobs"][0]["top"].pop(),
        Difference("logprobs", 0, 0, {"token_id": 1, "logprob": -2.5}, None),
    ),
    "a log-probability of the prompt": (
        lambda a: a["prompt_logprobs"][1].update(logprob=-1.25),
        Difference("prompt_logprobs", None, 1, {"token_id": 4, "logprob": -1.5}, {"token_id": 4, "logprob": -1.25}),
    ),
    "the count of tokens": (
        lambda a: a["usage"].update(generated_tokens=4),
        Difference("usage", None, None, 3, 4),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_difference_is_found_where_it_is(name: str) -> None:
    edit, difference = FOUND[name]

    assert difference == first_difference(answer(), changed(edit))


def explanation(token_id: int, entropy: float, uniform: float | None, *masses: float) -> dict[str, Any]:
    top = [{"token_id": token_id, "text": "t", "probability": 0.5}]
    stages = [{"name": "model", "candidates": 9, "mass": mass, "top": top} for mass in masses]
    return {"token_id": token_id, "text": "t", "entropy": entropy, "uniform": uniform, "stages": stages}


def explained() -> dict[str, Any]:
    return answer() | {"explain": [explanation(1, 2.0, 0.25, 1.0, 0.5), None, explanation(3, 1.0, None, 1.0)]}


EXPLAINED: dict[str, tuple[Edit, int, Any, Any]] = {
    "an entropy": (
        lambda a: a["explain"][0].update(entropy=math.nextafter(2.0, 3)),
        0,
        {"token_id": 1, "entropy": 2.0},
        {"token_id": 1, "entropy": math.nextafter(2.0, 3)},
    ),
    "the number drawn": (
        lambda a: a["explain"][2].update(uniform=0.5),
        2,
        {"token_id": 3, "uniform": None},
        {"token_id": 3, "uniform": 0.5},
    ),
    "a stage": (
        lambda a: a["explain"][0]["stages"].pop(),
        0,
        {
            "token_id": 1,
            "stage": {
                "name": "model",
                "candidates": 9,
                "mass": 0.5,
                "top": [{"token_id": 1, "probability": 0.5}],
            },
        },
        None,
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_explanations_are_compared(name: str) -> None:
    edit, position, expected, found = EXPLAINED[name]

    assert Difference("explain", 0, position, expected, found) == first_difference(
        explained(), changed(edit, explained())
    )


def test_how_an_explained_token_is_written_does_not_matter() -> None:
    assert None is first_difference(explained(), changed(lambda a: a["explain"][0].update(text="x"), explained()))


def test_explanations_that_were_not_recorded_are_not_compared() -> None:
    assert None is first_difference(answer(), explained())


def test_the_sign_of_zero_is_a_bit() -> None:
    zero = changed(lambda a: a["logprobs"][0].update(logprob=0.0))

    difference = first_difference(zero, changed(lambda a: a["logprobs"][0].update(logprob=-0.0)))

    assert difference is not None
    assert ("logprobs", 0) == (difference.field, difference.position)


def test_a_whole_number_is_the_float_that_it_is() -> None:
    """Some JSON tools write 1.0 as 1."""
    whole = changed(lambda a: a["logprobs"][0].update(logprob=-1))

    assert None is first_difference(whole, changed(lambda a: a["logprobs"][0].update(logprob=-1.0)))


def test_log_probabilities_that_were_not_recorded_are_not_compared() -> None:
    recorded = changed(lambda a: a.update(logprobs=None, prompt_logprobs=None))

    assert judge(recorded, answer()).equal


def test_the_first_of_several_differences_is_told() -> None:
    """A log-probability before a token, a token before what follows all tokens."""

    def edit(a: dict[str, Any]) -> None:
        a["logprobs"][1]["logprob"] = -7.0
        a["token_ids"][2] = 9
        a["text"] = ""

    difference = first_difference(answer(), changed(edit))

    assert difference is not None
    assert ("logprobs", 1) == (difference.field, difference.position)


def test_a_difference_names_its_choice() -> None:
    whole = answer(text_of(1, 2, index=0), text_of(1, 3, index=1))

    difference = first_difference(whole, changed(lambda a: a["choices"][1]["token_ids"].__setitem__(1, 4), whole))

    assert Difference("token_ids", 1, 1, 3, 4) == difference


def test_a_choice_too_few_is_a_difference() -> None:
    whole = answer(text_of(1, index=0), text_of(2, index=1), text_of(3, index=2))

    difference = first_difference(whole, changed(lambda a: a["choices"].pop(), whole))

    assert Difference("choices", None, None, 3, 2) == difference


@pytest.mark.parametrize("name", ["logprob", "score"])
def test_numbers_of_a_beam_are_compared_where_they_were_recorded(name: str) -> None:
    recorded = changed(lambda a: a.update({name: -3.5}))

    assert Difference(name, 0, None, -3.5, -3.25) == first_difference(  # type: ignore[arg-type]
        recorded, changed(lambda a: a.update({name: -3.25}))
    )


def test_why_a_beam_search_ended_is_compared() -> None:
    recorded = changed(lambda a: a.update(stopped="bound"))

    assert Difference("stopped", None, None, "bound", "length") == first_difference(
        recorded, changed(lambda a: a.update(stopped="length"))
    )


def cut(*token_ids: int) -> dict[str, Any]:
    return answer(text_of(*token_ids, finish_reason="deadline"))


def test_a_text_that_a_deadline_cut_is_compared_as_far_as_it_goes() -> None:
    verdict = judge(cut(1, 2), answer(text_of(1, 2, 3)))

    assert (True, ("cut_by_deadline",)) == (verdict.equal, verdict.notes)


def test_a_token_before_the_cut_is_compared() -> None:
    assert Difference("token_ids", 0, 1, 2, 3) == first_difference(cut(1, 2), answer(text_of(1, 3, 2)))


def test_a_text_that_does_not_reach_the_cut_differs() -> None:
    assert Difference("token_ids", 0, 1, 2, None) == first_difference(cut(1, 2), answer(text_of(1)))


def test_an_equal_answer_needs_no_reason_whoever_made_it() -> None:
    other = changed(lambda a: a.update(model="other"))

    assert () == judge(answer(), other).reasons


REASONS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "nothing": (lambda a: None, ("unexplained",)),
    "another model": (lambda a: a.update(model="other"), ("other_model",)),
    "another fingerprint": (lambda a: a["reproducibility"].update(fingerprint="x"), ("other_fingerprint",)),
    "another version": (lambda a: a["reproducibility"].update(version="2"), ("other_version",)),
    "another default": (lambda a: a["parameters"].update(temperature=0.7), ("other_parameters",)),
    "another session": (lambda a: a["parameters"].update(session_id="s", use_cache=False), ("unexplained",)),
    "a level without a promise": (lambda a: a["reproducibility"].update(level="best_effort"), ("best_effort",)),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_difference_has_its_reason(name: str) -> None:
    edit, reasons = REASONS[name]
    other = changed(edit)
    other["token_ids"][0] = 9

    assert reasons == judge(answer(), other).reasons


def test_a_record_that_contradicts_itself_says_so_and_blames_no_default() -> None:
    other = changed(lambda a: a["parameters"].update(temperature=0.7))
    other["token_ids"][0] = 9

    assert ("contradictory_record",) == judge(answer(), other, contradictory=True).reasons


def test_all_reasons_are_told() -> None:
    def edit(a: dict[str, Any]) -> None:
        a.update(model="other", text="")
        a["reproducibility"].update(fingerprint="x", version="2", level="best_effort")

    expected = ("other_model", "other_fingerprint", "other_version", "best_effort")

    assert expected == judge(answer(), changed(edit)).reasons


def test_a_version_that_was_not_recorded_is_no_reason() -> None:
    recorded = changed(lambda a: a["reproducibility"].pop("version"))

    assert ("unexplained",) == judge(recorded, changed(lambda a: a.update(text=""))).reasons


def test_a_record_without_a_promise_says_so_even_where_it_holds() -> None:
    recorded = changed(lambda a: a["reproducibility"].update(level="best_effort"))

    verdict = judge(recorded, recorded)

    assert (True, ("best_effort",)) == (verdict.equal, verdict.notes)


def test_values_are_the_same_before_and_after_they_were_written() -> None:
    """Lists for tuples: of an answer that was just made, and of one that was read."""
    found = changed(lambda a: a["parameters"].update(stop=()))
    found["text"] = ""

    assert ("unexplained",) == judge(answer(), found).reasons


def test_a_record_holds_the_seed_that_was_drawn() -> None:
    assert {"request": {"prompt": "a", "seed": 5}, "answer": answer()} == record_of({"prompt": "a"}, answer())
