"""An answer that is cut anywhere and resumed is the same answer: text, ids, log-probabilities, explanations."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintSpec
from model.decoding.params import DecodingParameters, LogprobOptions, Penalties, Speculation
from model.tokenizer import Tokenizer
from service.request import Delta, Failed, Finished, GenerationRequest, TokenRecord, Usage
from tests.bits.laboratory import Laboratory
from tests.bits.questions import prose, random_prompt
from tests.tiny_model import TinyShape, write_tiny_gguf

NEW_TOKENS = 14
SEED = 11
GREEDY: Mapping[str, Any] = {"temperature": 0.0}
DRAWN: Mapping[str, Any] = {"temperature": 0.8}
NARROW: Mapping[str, Any] = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.01}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "greedy": GREEDY,
    "drawn": DRAWN,
    "drawn of few": NARROW,
    "penalised": {**DRAWN, "penalties": Penalties(1.3, "all", 0.4, 0.2)},
    "penalised greedy": {**GREEDY, "penalties": Penalties(1.1, "generated", 0.1, 0.1)},
    "biased": {**DRAWN, "logit_bias": ((5, 2.0), (6, 3.0), (70, -5.0)), "banned_token_ids": (8, 9)},
    "with stops": {"temperature": 0.3, "stop": ("e", "he", "a"), "min_new_tokens": 5, "ignore_eos": False},
    "with stop tokens": {**GREEDY, "stop_token_ids": tuple(range(3, 320, 7)), "min_new_tokens": 4},
    "that may end": {**DRAWN, "ignore_eos": False, "logit_bias": ((0, 4.0), (2, 4.0)), "min_new_tokens": 3},
    "scored": {**DRAWN, "logprobs": LogprobOptions(3)},
    "scored greedily": {**GREEDY, "logprobs": LogprobOptions(2), "penalties": Penalties(1.3, "all", 0.4, 0.2)},
    "scored with the prompt": {**DRAWN, "logprobs": LogprobOptions(1, prompt=True)},
    "scored as sampled": {**NARROW, "logprobs": LogprobOptions(3, "sampled"), "penalties": Penalties(1.3, "all")},
    "scored with stops": {**DRAWN, "stop": ("e", "he", "a"), "min_new_tokens": 5, "logprobs": LogprobOptions(1)},
    "explained": {**NARROW, "explain": True, "penalties": Penalties(presence=0.5)},
}
FORMS: Mapping[str, ConstraintSpec] = {
    "a regular expression": ConstraintSpec.regex("[a-f]{2,9}-[0-9]{1,20}"),
    "a choice": ConstraintSpec.choice(("The answer is yes", "The answer is no", "perhaps")),
    "a document": ConstraintSpec.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the terminal says of the answer, but times and what the cache did."""

    text: str
    tokens: tuple[TokenRecord, ...]
    finish_reason: str
    prompt: tuple[TokenRecord, ...]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512), format="Q8_0")
    return Laboratory(model, draft=str(model), draft_cache_bytes=4 << 20, threads=1)


@pytest.fixture(scope="module")
def compiler(laboratory: Laboratory) -> ConstraintCompiler:
    tokenizer = laboratory.model.tokenizer
    assert isinstance(tokenizer, Tokenizer)
    return ConstraintCompiler(tokenizer)


def asked(laboratory: Laboratory, prompt: int = 40, **given: Any) -> GenerationRequest:
    parameters = DecodingParameters(**{"max_new_tokens": NEW_TOKENS, "seed": SEED, "ignore_eos": True, **given})
    ids = prose(random.Random(prompt), prompt, laboratory.model.tokenizer.encode)
    return GenerationRequest(laboratory.new_id(), ids, parameters)


def ended(laboratory: Laboratory, request: GenerationRequest) -> Finished:
    (terminal,) = laboratory.run([replace(request, id=laboratory.new_id())])
    assert isinstance(terminal, Finished), terminal
    return terminal


def seen(terminal: Finished) -> Seen:
    (completion,) = terminal.completions
    return Seen(completion.text, completion.tokens, completion.finish_reason, terminal.prompt)


def ids_of(terminal: Finished) -> tuple[int, ...]:
    return tuple(token.token_id for token in terminal.completions[0].tokens)


def resumptions(request: GenerationRequest, ids: tuple[int, ...]) -> Iterator[GenerationRequest]:
    """The request after none, one, … all of its answer's tokens."""
    for cut in range(len(ids) + 1):
        yield replace(request, resumed_ids=ids[:cut], resumed_ends=cut == len(ids))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use_cache", [True, False], ids=["warm", "cold"])
def test_the_answer_is_the_same_wherever_it_was_cut(way: str, use_cache: bool, laboratory: Laboratory) -> None:
    request = replace(asked(laboratory, **WAYS[way]), use_cache=use_cache)
    whole = ended(laboratory, request)

    answers = [seen(ended(laboratory, each)) for each in resumptions(request, ids_of(whole))]

    assert [seen(whole)] * len(answers) == answers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("logprobs", [None, LogprobOptions(2), LogprobOptions(2, "sampled")], ids=str)
def test_so_is_one_that_keeps_a_form(
    form: str, logprobs: LogprobOptions | None, laboratory: Laboratory, compiler: ConstraintCompiler
) -> None:
    constraint = compiler.compile(FORMS[form])
    request = asked(laboratory, temperature=1.5, ignore_eos=False, max_new_tokens=24, logprobs=logprobs)

    whole = ended(laboratory, replace(request, constraint=constraint.renewed()))
    cuts = resumptions(request, ids_of(whole))
    answers = [seen(ended(laboratory, replace(each, constraint=constraint.renewed()))) for each in cuts]

    assert [seen(whole)] * len(answers) == answers


@pytest.mark.parametrize("mode", ["prompt_lookup", "draft", "auto"])
@pytest.mark.parametrize("explain", [False, True])
def test_so_is_one_that_is_guessed_ahead(mode: Speculation, explain: bool, laboratory: Laboratory) -> None:
    request = asked(laboratory, **GREEDY, explain=explain)
    plain = ended(laboratory, request)
    guessed = replace(request, parameters=replace(request.parameters, speculation=mode))

    answers = [seen(ended(laboratory, each)) for each in resumptions(guessed, ids_of(plain))]

    assert [seen(plain)] * len(answers) == answers


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_so_is_one_whose_tokens_are_read_in_several_steps(rows: int, laboratory: Laboratory) -> None:
    """Log-probabilities of an answer of more tokens than a step scores."""
    request = asked(laboratory, **DRAWN, logprobs=LogprobOptions(1), max_new_tokens=90)
    whole = ended(laboratory, request)
    slow = replace(request, resumed_ids=ids_of(whole)[:-1], use_cache=False)

    requests = [replace(slow, id=laboratory.new_id()) for _ in range(rows)]
    terminals = laboratory.run(requests)

    assert [seen(whole)] * rows == [seen(each) for each in terminals if isinstance(each, Finished)]


@pytest.mark.parametrize("way", ["drawn", "scored"])
def test_usage_counts_new_and_resumed_tokens_apart(way: str, laboratory: Laboratory) -> None:
    request = asked(laboratory, **WAYS[way])
    ids = ids_of(ended(laboratory, request))

    usage = [ended(laboratory, replace(each, use_cache=False)).usage for each in resumptions(request, ids)]

    expected = [Usage(40, NEW_TOKENS - cut, cached_tokens=0, resumed_tokens=cut) for cut in range(NEW_TOKENS + 1)]
    assert expected == usage


@pytest.mark.parametrize("way", ["with stops", "scored with stops", "drawn", "scored"])
def test_the_stream_goes_on_where_it_was_cut(way: str, laboratory: Laboratory) -> None:
    """At each event of the first stream: ids, their count and the text that follow are those of the rest of it."""
    request = replace(asked(laboratory, **WAYS[way]), streams=True)
    first = deltas_of(laboratory, request)
    ids = tuple(token.token_id for delta in first for token in delta.tokens)
    for number, delta in enumerate(first):
        again = deltas_of(
            laboratory, replace(request, resumed_ids=ids[: delta.sent], resumed_ends=delta.sent == len(ids))
        )
        rest = first[number + 1 :]

        assert [each.tokens for each in rest] == [each.tokens for each in again]
        assert [each.sent for each in rest] == [each.sent for each in again]
        assert "".join(each.text for each in rest) == "".join(each.text for each in again)


def deltas_of(laboratory: Laboratory, request: GenerationRequest) -> list[Delta]:
    laboratory.engine.submit(replace(request, id=laboratory.new_id()), 0.0)
    return [event for event in laboratory.until_idle() if isinstance(event, Delta)]


def test_an_answer_that_has_ended_runs_no_row(laboratory: Laboratory) -> None:
    request = asked(laboratory, **DRAWN)
    ids = ids_of(ended(laboratory, request))

    terminal = ended(laboratory, replace(request, resumed_ids=ids, resumed_ends=True))

    assert (0, 0) == (terminal.cache.computed_tokens, terminal.cache.reused_tokens)


def test_pages_of_the_answer_are_used_again(laboratory: Laboratory) -> None:
    request = asked(laboratory, **DRAWN, max_new_tokens=60)
    ids = ids_of(ended(laboratory, request))

    terminal = ended(laboratory, replace(request, resumed_ids=ids[:50]))

    assert (89, 1) == (terminal.cache.reused_tokens, terminal.cache.computed_tokens)


def test_an_answer_goes_on_after_tokens_that_it_would_not_have_drawn(laboratory: Laboratory) -> None:
    request = asked(laboratory, **DRAWN, logprobs=LogprobOptions(1))
    strange = random_prompt(random.Random(1), 5, 259)

    terminal = ended(laboratory, replace(request, resumed_ids=strange))

    assert strange == ids_of(terminal)[:5]
    assert all(token.logprob is not None for token in terminal.completions[0].tokens)


def test_of_such_tokens_nothing_can_be_told_that_was_sampled(laboratory: Laboratory) -> None:
    request = asked(laboratory, **NARROW, logprobs=LogprobOptions(1, "sampled"))

    (terminal,) = laboratory.run([replace(request, resumed_ids=random_prompt(random.Random(1), 5, 259))])

    assert isinstance(terminal, Failed)
    assert "resume_mismatch" == terminal.code
