"""Whether an answer is the recorded one, where the two part, and what may explain it.

Knows the JSON that `POST /generate` answers; knows no engine, no HTTP and no schema, so answers are checked before.
Always: token ids, texts, reasons for an end, log-probabilities down to their last bit where they were recorded, and the
count of generated tokens are compared; names, times and the cache's work never are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

Answer = Mapping[str, Any]
Field = Literal[
    "token_ids",
    "logprobs",
    "text",
    "finish_reason",
    "logprob",
    "score",
    "choices",
    "prompt_logprobs",
    "stopped",
    "usage",
]
Reason = Literal[
    "other_model",
    "other_fingerprint",
    "other_version",
    "other_parameters",
    "parameters_not_accepted",
    "best_effort",
    "unexplained",
]
Note = Literal["cut_by_deadline", "best_effort"]

NOT_REPLAYED: Mapping[str, Any] = {
    "model": None,
    "session_id": None,
    "speculation": "auto",
    "deadline_ms": None,
    "stream": False,
}
"""Fields of a request that must not change its text, and the values that they are replayed with."""
CHANGE_NO_TEXT = {*NOT_REPLAYED, "use_cache"}
EXCERPT_LENGTH = 40
"""Most characters of a text that are shown from where it differs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an answer is not the recorded one.

    `index` is that of the choice; `position` counts tokens, and characters where a text differs. Both are None where
    there is no such thing.
    """

    field: Field
    index: int | None
    position: int | None
    expected: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Maker:
    """What made an answer, and whether it promised the same bits."""

    model: str
    fingerprint: str
    version: str | None
    level: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a record still holds. `reasons` is empty where it does."""

    equal: bool
    first_difference: Difference | None
    reasons: tuple[Reason, ...]
    notes: tuple[Note, ...]
    """What is to be known of the record, whether it holds or not."""


def record_of(request: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """A record: the body that was sent, with the seed that was used, and the whole answer."""
    return {"request": {**request, "seed": answer["seed"]}, "answer": answer}


def judge(recorded: Answer, found: Answer) -> Verdict:
    """Compare a new answer with the recorded one."""
    difference = first_difference(recorded, found)
    if difference is None:
        return Verdict(True, None, (), notes_on(recorded))
    other = _reasons(maker_of(recorded), maker_of(found))
    if _other_parameters(recorded.get("parameters") or {}, found.get("parameters") or {}):
        other.append("other_parameters")
    if "best_effort" in (maker_of(recorded).level, maker_of(found).level):
        other.append("best_effort")
    return Verdict(False, difference, tuple(other) or ("unexplained",), notes_on(recorded))


def refused(recorded: Answer, maker: Maker) -> Verdict:
    """The request is not accepted by another maker."""
    reasons = (*_reasons(maker_of(recorded), maker), "parameters_not_accepted")
    return Verdict(False, None, reasons, notes_on(recorded))


def maker_of(answer: Answer) -> Maker:
    made = answer["reproducibility"]
    return Maker(answer["model"], made["fingerprint"], made.get("version"), made["level"])


def is_same_maker(one: Maker, other: Maker) -> bool:
    """Whether nothing that is known of them tells them apart."""
    return not _reasons(one, other)


def notes_on(recorded: Answer) -> tuple[Note, ...]:
    notes: list[Note] = []
    if any(choice["finish_reason"] == "deadline" for choice in choices_of(recorded)):
        notes.append("cut_by_deadline")
    if maker_of(recorded).level == "best_effort":
        notes.append("best_effort")
    return tuple(notes)


def choices_of(answer: Answer) -> Sequence[Answer]:
    """The texts of an answer; one alone stands at its top."""
    return answer.get("choices") or [answer]


def first_difference(recorded: Answer, found: Answer) -> Difference | None:
    """Where the answers part: the texts in turn, then what belongs to all of them. None where they are equal.

    Of a text that a deadline cut only the tokens that are there are compared, since the next run may get further.
    """
    return next(_differences(recorded, found), None)


def _differences(recorded: Answer, found: Answer) -> Iterator[Difference]:
    expected_choices, found_choices = choices_of(recorded), choices_of(found)
    for index, (expected, new) in enumerate(zip(expected_choices, found_choices, strict=False)):
        yield from _of_choice(index, expected, new)
    if len(expected_choices) != len(found_choices):
        yield Difference("choices", None, None, len(expected_choices), len(found_choices))
    if recorded.get("prompt_logprobs") is not None:
        yield from _of_entries("prompt_logprobs", None, recorded["prompt_logprobs"], found.get("prompt_logprobs") or ())
    if recorded.get("stopped") not in (None, found.get("stopped")):
        yield Difference("stopped", None, None, recorded["stopped"], found.get("stopped"))
    counts = recorded["usage"]["generated_tokens"], found["usage"]["generated_tokens"]
    if counts[0] != counts[1] and "cut_by_deadline" not in notes_on(recorded):
        yield Difference("usage", None, None, *counts)


def _of_choice(index: int, expected: Answer, found: Answer) -> Iterator[Difference]:
    is_cut = expected["finish_reason"] == "deadline"
    end = len(expected["token_ids"]) if is_cut else None
    tokens = zip_longest(expected["token_ids"], found["token_ids"][:end])
    entries: Iterator[Difference] = iter(())
    if expected.get("logprobs") is not None:
        entries = _of_entries("logprobs", index, expected["logprobs"], (found.get("logprobs") or ())[:end])
    entry = next(entries, None)
    for position, (one, other) in enumerate(tokens):
        if one != other:
            yield Difference("token_ids", index, position, one, other)
        if entry is not None and entry.position == position:
            yield entry
    if is_cut:
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


def _of_text(index: int, expected: str, found: str) -> Difference:
    pairs = enumerate(zip_longest(expected, found))
    position = next(position for position, (one, other) in pairs if one != other)
    end = position + EXCERPT_LENGTH
    return Difference("text", index, position, expected[position:end], found[position:end])


def _of_entries(
    field: Literal["logprobs", "prompt_logprobs"], index: int | None, expected: Sequence[Any], found: Sequence[Any]
) -> Iterator[Difference]:
    """Log-probabilities, each of a token and of its rivals."""
    for position, (one, other) in enumerate(zip_longest(expected, found)):
        for expected_pair, found_pair in zip_longest(_pairs(one), _pairs(other)):
            if _pair_bits(expected_pair) != _pair_bits(found_pair):
                yield Difference(field, index, position, expected_pair, found_pair)


def _pairs(entry: Answer | None) -> list[dict[str, Any]]:
    """A token and its rivals, without what follows from their ids."""
    if entry is None:
        return []
    return [{"token_id": one["token_id"], "logprob": one["logprob"]} for one in (entry, *entry.get("top", ()))]


def _pair_bits(pair: Mapping[str, Any] | None) -> tuple[int, str | None] | None:
    return None if pair is None else (pair["token_id"], _bits(pair["logprob"]))


def _bits(number: float | None) -> str | None:
    """Every bit, where == would let pass the sign of zero."""
    return None if number is None else float(number).hex()


def _reasons(recorded: Maker, found: Maker) -> list[Reason]:
    reasons: list[Reason] = []
    if recorded.model != found.model:
        reasons.append("other_model")
    if recorded.fingerprint != found.fingerprint:
        reasons.append("other_fingerprint")
    if recorded.version not in (None, found.version):
        reasons.append("other_version")
    return reasons


def _other_parameters(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether a value that was left out, and that the text depends on, has another default now."""
    known = (recorded.keys() & found.keys()) - CHANGE_NO_TEXT
    return any(_as_json(recorded[name]) != _as_json(found[name]) for name in known)


def _as_json(value: Any) -> Any:
    """The value with lists for tuples, as it is once it was written and read."""
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_json(item) for item in value]
    return value
