"""The first place where an answer is not the recorded one.

Knows the JSON that `POST /generate` answers; knows no engine, no HTTP and no schema, so answers are checked before.
Always: token ids, texts, reasons for an end, log-probabilities, explanations and the steps of a search down to their
last bit where they were recorded, and the count of generated tokens are compared; names, times and the cache's work
never are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

Answer = Mapping[str, Any]
Field = Literal[
    "token_ids",
    "logprobs",
    "explain",
    "text",
    "finish_reason",
    "logprob",
    "score",
    "choices",
    "prompt_logprobs",
    "beams",
    "stopped",
    "usage",
]
Parts = Callable[[Any], list[dict[str, Any]]]
"""What is compared of the entry of a token or of a step, each as it is told."""

EXCERPT_LENGTH = 40
"""Most characters of a text that are shown from where it differs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an answer is not the recorded one.

    `index` is that of the choice; `position` counts tokens, steps of a search, and characters where a text differs.
    Both are None where there is no such thing.
    """

    field: Field
    index: int | None
    position: int | None
    expected: Any
    found: Any


def choices_of(answer: Answer) -> Sequence[Answer]:
    """The texts of an answer; one alone stands at its top."""
    return answer.get("choices") or [answer]


def is_cut(answer: Answer) -> bool:
    """Whether a deadline ended any of its texts, or the search for them."""
    return is_cut_search(answer) or any(choice["finish_reason"] == "deadline" for choice in choices_of(answer))


def is_cut_search(answer: Answer) -> bool:
    """Whether a deadline ended a search, which may find other texts when it gets further."""
    return answer.get("stopped") == "deadline"


def first_difference(recorded: Answer, found: Answer) -> Difference | None:
    """Where the answers part: the texts in turn, then what belongs to all of them. None where they are equal.

    Of a text that a deadline cut only the tokens that are there are compared, since the next run may get further; of a
    search its steps, where they were recorded.
    """
    return next(_differences(recorded, found), None)


def _differences(recorded: Answer, found: Answer) -> Iterator[Difference]:
    if is_cut_search(recorded) and recorded.get("beams") is not None:
        yield from _of_entries("prompt_logprobs", None, (recorded, found), _logprob_parts)
        yield from _of_entries("beams", None, (recorded, found), _beam_parts, len(recorded["beams"]))
        return
    expected_choices, found_choices = choices_of(recorded), choices_of(found)
    for index, (expected, new) in enumerate(zip(expected_choices, found_choices, strict=False)):
        yield from _of_choice(index, expected, new)
    if len(expected_choices) != len(found_choices):
        yield Difference("choices", None, None, len(expected_choices), len(found_choices))
    yield from _of_entries("prompt_logprobs", None, (recorded, found), _logprob_parts)
    yield from _of_entries("beams", None, (recorded, found), _beam_parts)
    if recorded.get("stopped") not in (None, found.get("stopped")):
        yield Difference("stopped", None, None, recorded["stopped"], found.get("stopped"))
    counts = _tokens(recorded["usage"]), _tokens(found["usage"])
    if counts[0] != counts[1] and not is_cut(recorded):
        yield Difference("usage", None, None, *counts)


def _tokens(usage: Mapping[str, Any]) -> int:
    """Of the texts: those that were generated now, and those that an interrupted answer was resumed after."""
    total: int = usage["generated_tokens"] + usage.get("resumed_tokens", 0)
    return total


def _of_choice(index: int, expected: Answer, found: Answer) -> Iterator[Difference]:
    is_short = expected["finish_reason"] == "deadline"
    end = len(expected["token_ids"]) if is_short else None
    of_tokens = (
        next(_of_ids(index, expected["token_ids"], found["token_ids"][:end]), None),
        next(_of_entries("logprobs", index, (expected, found), _logprob_parts, end), None),
        next(_of_entries("explain", index, (expected, found), _explanation_parts, end), None),
    )
    yield from sorted((each for each in of_tokens if each is not None), key=lambda each: each.position or 0)
    if is_short:
        return
    if expected["text"] != found["text"]:
        yield _of_text(index, expected["text"], found["text"])
    if expected["finish_reason"] != found["finish_reason"]:
        yield Difference("finish_reason", index, None, expected["finish_reason"], found["finish_reason"])
    yield from _of_beam(index, expected, found)


def _of_beam(index: int, expected: Answer, found: Answer) -> Iterator[Difference]:
    names: tuple[Literal["logprob", "score"], ...] = ("logprob", "score")
    for name in names:
        if expected.get(name) is not None and _bits(expected[name]) != _bits(found.get(name)):
            yield Difference(name, index, None, expected[name], found.get(name))


def _of_ids(index: int, expected: Sequence[int], found: Sequence[int]) -> Iterator[Difference]:
    for position, (one, other) in enumerate(zip_longest(expected, found)):
        if one != other:
            yield Difference("token_ids", index, position, one, other)


def _of_text(index: int, expected: str, found: str) -> Difference:
    pairs = enumerate(zip_longest(expected, found))
    position = next(position for position, (one, other) in pairs if one != other)
    end = position + EXCERPT_LENGTH
    return Difference("text", index, position, expected[position:end], found[position:end])


def _of_entries(
    field: Literal["logprobs", "explain", "prompt_logprobs", "beams"],
    index: int | None,
    answers: tuple[Answer, Answer],
    parts: Parts,
    end: int | None = None,
) -> Iterator[Difference]:
    """What the recorded and the found answer say of each token or step, as far as `end`, where it was recorded."""
    recorded, found = answers
    if recorded.get(field) is None:
        return
    entries = zip_longest(recorded[field], (found.get(field) or ())[:end])
    for position, (one, other) in enumerate(entries):
        for expected_part, found_part in zip_longest(parts(one), parts(other)):
            if _bits(expected_part) != _bits(found_part):
                yield Difference(field, index, position, expected_part, found_part)


def _logprob_parts(entry: Answer | None) -> list[dict[str, Any]]:
    """A token and its rivals, without what follows from their ids."""
    if entry is None:
        return []
    return [{"token_id": one["token_id"], "logprob": one["logprob"]} for one in (entry, *entry.get("top", ()))]


def _beam_parts(step: Sequence[Answer] | None) -> list[dict[str, Any]]:
    """The beams of a step, without what follows from their ids."""
    names = ("parent", "token_id", "logprob", "ending")
    return [{name: beam.get(name) for name in names} for beam in step or ()]


def _explanation_parts(entry: Answer | None) -> list[dict[str, Any]]:
    """The numbers of a choice and then its stages, without what follows from ids."""
    if entry is None:
        return []
    token = {"token_id": entry["token_id"]}
    numbers = [token | {name: entry.get(name)} for name in ("entropy", "uniform")]
    return numbers + [token | {"stage": _stage(stage)} for stage in entry["stages"]]


def _stage(stage: Answer) -> dict[str, Any]:
    top = [{"token_id": one["token_id"], "probability": one["probability"]} for one in stage["top"]]
    return {"name": stage["name"], "candidates": stage["candidates"], "mass": stage["mass"], "top": top}


def _bits(value: Any) -> Any:
    """The value with every bit of its numbers, where == would let pass the sign of zero."""
    if isinstance(value, Mapping):
        return {name: _bits(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_bits(item) for item in value]
    return float(value).hex() if isinstance(value, int | float) else value
