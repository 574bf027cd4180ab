"""Guessing ahead changes no bit of any answer: ids, text, log-probabilities, reasons for an end and usage."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintSpec
from model.decoding.params import DecodingParameters, LogprobOptions, Penalties, Speculation
from model.tokenizer import Tokenizer
from service.request import Delta, Finished, GenerationRequest
from tests.bits.laboratory import Laboratory, bits_of
from tests.bits.questions import Bits, prose, random_prompt
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=1024)
SMALL = TinyShape(layers=1, context=1024)
MODES: tuple[Speculation, ...] = ("prompt_lookup", "draft", "auto")
PROMPTS = 6
NEW_TOKENS = 40
DEFAULT_CACHE = 1 << 28
DEFAULT_PROMPTS, DEFAULT_TOKENS = 50, 20

WAYS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.8},
    "drawn of few": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalised": {"temperature": 0.8, "penalties": Penalties(1.3, "all", 0.4, 0.2)},
    "penalised greedy": {"temperature": 0.0, "penalties": Penalties(1.1, "generated", 0.1, 0.1)},
    "with stops": {"temperature": 0.3, "stop": ("e", "he", "a"), "min_new_tokens": 5, "ignore_eos": False},
    "with stop tokens": {"temperature": 0.0, "stop_token_ids": tuple(range(3, 320, 7)), "min_new_tokens": 4},
    "biased": {"temperature": 0.8, "logit_bias": ((5, 2.0), (6, 3.0), (70, -5.0)), "banned_token_ids": (8, 9)},
    "that may end": {"temperature": 0.8, "ignore_eos": False, "logit_bias": ((0, 4.0),), "min_new_tokens": 3},
    "explained": {"temperature": 0.8, "top_p": 0.9, "explain": True},
}


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a caller sees of an answer, but times and what was guessed."""

    bits: Bits
    generated_tokens: int
    explanations: tuple[Any, ...]


@pytest.fixture(scope="module")
def laboratories(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Laboratory]:
    """Engines with a draft model: one agrees always, one seldom."""
    folder = tmp_path_factory.mktemp("model")
    target = write_tiny_gguf(folder / "target.gguf", shape=SHAPE, format="Q8_0")
    small = write_tiny_gguf(folder / "small.gguf", shape=SMALL, format="Q8_0", seed=3)
    return {
        name: Laboratory(target, draft=str(draft), draft_cache_bytes=4 << 20, threads=1)
        for name, draft in (("itself", target), ("small", small))
    }


def prompts(laboratory: Laboratory, count: int = PROMPTS) -> Iterator[tuple[int, ...]]:
    """Prose, noise, and noise that repeats."""
    draw = random.Random(4)
    for number in range(count):
        length = draw.choice((5, 31, 64, 90))
        noise = random_prompt(draw, length, laboratory.vocabulary_size)
        yield (noise, prose(draw, length, laboratory.model.tokenizer.encode), noise[:9] * 4)[number % 3]


def requests(
    laboratory: Laboratory,
    mode: Speculation,
    given: Mapping[str, Any],
    count: int = PROMPTS,
    new_tokens: int = NEW_TOKENS,
    **fields: Any,
) -> list[GenerationRequest]:
    wanted = {"ignore_eos": True, "logprobs": LogprobOptions(2), **given}
    return [
        GenerationRequest(
            laboratory.new_id(), prompt, DecodingParameters(new_tokens, seed=seed, speculation=mode, **wanted), **fields
        )
        for seed, prompt in enumerate(prompts(laboratory, count))
    ]


def seen(finished: Any) -> Seen:
    assert isinstance(finished, Finished), finished
    explanations = tuple(token.explanation for each in finished.completions for token in each.tokens)
    return Seen(bits_of(finished), finished.usage.generated_tokens, explanations)


def answers(laboratory: Laboratory, mode: Speculation, given: Mapping[str, Any], **fields: Any) -> list[Finished]:
    """Each alone and from nothing."""
    found = []
    for request in requests(laboratory, mode, given, use_cache=False, **fields):
        (finished,) = laboratory.run([request])
        assert isinstance(finished, Finished), finished
        found.append(finished)
    laboratory.engine.check_books()
    return found


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_answers_are_those_without_guesses(way: str, samples: int, laboratories: Mapping[str, Laboratory]) -> None:
    laboratory = laboratories["small"]
    expected = [seen(each) for each in answers(laboratory, "off", WAYS[way], sample_count=samples)]

    for mode in MODES:
        found = answers(laboratory, mode, WAYS[way], sample_count=samples)
        assert expected == [seen(each) for each in found]
        assert mode == "auto" or sum(each.speculation.drafted_tokens for each in found) > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_guesses_for_itself_is_always_right(way: str, laboratories: Mapping[str, Laboratory]) -> None:
    laboratory = laboratories["itself"]

    found = answers(laboratory, "draft", WAYS[way])

    assert [seen(each) for each in answers(laboratory, "off", WAYS[way])] == [seen(each) for each in found]
    drafted, accepted = zip(
        *((e.speculation.drafted_tokens, e.speculation.accepted_tokens) for e in found), strict=True
    )
    # Guesses that are right may still stand behind a stop string, and are dropped with what follows it.
    assert 0 < sum(accepted) <= sum(drafted)
    assert "stop" in WAYS[way] or drafted == accepted


def test_greedy_texts_that_turn_in_circles_are_guessed_well(laboratories: Mapping[str, Laboratory]) -> None:
    found = answers(laboratories["small"], "prompt_lookup", WAYS["greedy"])

    assert sum(each.speculation.accepted_tokens for each in found) > 0


@pytest.mark.parametrize("way", ["drawn", "penalised", "with stops"])
def test_under_load_answers_are_those_without_guesses(way: str, laboratories: Mapping[str, Laboratory]) -> None:
    """Eighteen at a time, in all modes at once, on sessions and streamed, and some are given up."""
    laboratory = laboratories["small"]
    expected = {
        prompt: seen(each)
        for prompt, each in zip(prompts(laboratory), answers(laboratory, "off", WAYS[way]), strict=True)
    }
    asked = [
        replace(request, session_id=request.id, streams=True)
        for mode in MODES
        for request in requests(laboratory, mode, WAYS[way])
    ]

    for request in asked:
        laboratory.engine.submit(request, 0.0)
    events = []
    for number in range(12):
        events += laboratory.engine.step()[0]
        if number % 4 == 3:
            events += laboratory.engine.cancel(asked[number].id)
    events += laboratory.until_idle()

    laboratory.engine.check_books()
    finished = {each.request_id: each for each in events if isinstance(each, Finished)}
    assert len(finished) >= len(asked) - 3
    for request in asked:
        if request.id in finished:
            assert expected[request.prompt_ids] == seen(finished[request.id])
            texts = [each.text for each in events if isinstance(each, Delta) and each.request_id == request.id]
            assert finished[request.id].completions[0].text == "".join(texts)


def test_the_next_turn_reads_only_what_was_accepted(laboratories: Mapping[str, Laboratory]) -> None:
    laboratory = laboratories["small"]

    def turns(mode: Speculation) -> list[Seen]:
        laboratory.forget()
        found = []
        for first in requests(laboratory, mode, WAYS["drawn"], session_id="s"):
            (one,) = laboratory.run([first])
            assert isinstance(one, Finished)
            history = (*first.prompt_ids, *(token.token_id for token in one.completions[0].tokens))
            (two,) = laboratory.run([replace(first, id=laboratory.new_id(), prompt_ids=(*history, 7, 8))])
            assert isinstance(two, Finished)
            assert two.cache.reused_tokens == len(history) - 1
            found.append(seen(two))
        return found

    assert turns("off") == turns("prompt_lookup") == turns("draft")


CONSTRAINTS = {
    "json": ConstraintSpec.json_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"enum": ["hello", "the seed"]}, "minItems": 2, "maxItems": 3}
            },
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "regex": ConstraintSpec.regex("(the seed |the rain ){2,5}end"),
    "choice": ConstraintSpec.choice(("the seed lies in the ground", "the seed waits for the rain")),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constrained_answers_are_those_without_guesses(
    kind: str, temperature: float, laboratories: Mapping[str, Laboratory]
) -> None:
    laboratory = laboratories["small"]
    tokenizer = laboratory.model.tokenizer
    assert isinstance(tokenizer, Tokenizer)
    compiled = ConstraintCompiler(tokenizer).compile(CONSTRAINTS[kind]).fitted(NEW_TOKENS)
    given = {"temperature": temperature, "ignore_eos": False}
    expected = [seen(each) for each in answers(laboratory, "off", given, constraint=compiled.renewed())]

    found = {mode: answers(laboratory, mode, given, constraint=compiled.renewed()) for mode in MODES}

    assert dict.fromkeys(MODES, expected) == {mode: [seen(e) for e in each] for mode, each in found.items()}
    assert sum(each.speculation.drafted_tokens for each in found["draft"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_default_model_answers_as_without_guesses(temperature: float, default_model_path: Path) -> None:
    """Fifty prompts, five at a time; every second one has guesses also where they do not pay."""
    laboratory = Laboratory(default_model_path, cache_bytes=DEFAULT_CACHE)
    given = {"temperature": temperature, "penalties": Penalties(1.05, "generated", 0.0, 0.0), "stop": ("\n\n\n",)}

    def together(*modes: Speculation) -> list[Seen]:
        by_mode = [
            requests(laboratory, mode, given, DEFAULT_PROMPTS, DEFAULT_TOKENS, use_cache=False) for mode in modes
        ]
        asked = [by_mode[number % len(modes)][number] for number in range(DEFAULT_PROMPTS)]
        return [seen(each) for first in range(0, len(asked), 5) for each in laboratory.run(asked[first : first + 5])]

    assert together("off") == together("prompt_lookup", "auto")
