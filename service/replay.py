"""Whether an answer is the recorded one, and what may explain it where it is not.

Knows the JSON that `POST /generate` answers; knows no engine, no HTTP and no schema, so answers are checked before.
Always: a difference has a reason, if only that there is none that is known.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from service.replay_difference import Answer, Difference, first_difference, is_cut, is_cut_search

Reason = Literal[
    "contradictory_record",
    "other_model",
    "other_fingerprint",
    "other_version",
    "other_parameters",
    "parameters_not_accepted",
    "best_effort",
    "cut_by_deadline",
    "unexplained",
]
Note = Literal["cut_by_deadline", "best_effort"]

NOT_REPLAYED: Mapping[str, Any] = {
    "model": None,
    "session_id": None,
    "resume": None,
    "speculation": "auto",
    "deadline_ms": None,
    "stream": False,
}
"""Fields of a request that must not change its text, and the values that they are replayed with.

A model's name changes it, and is kept where that model runs the record.
"""
CHANGE_NO_TEXT = {*NOT_REPLAYED, "use_cache"}


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


def judge(recorded: Answer, found: Answer, *, contradictory: bool = False) -> Verdict:
    """Compare a new answer with the recorded one. The record is contradictory when it answers another request."""
    difference = first_difference(recorded, found)
    if difference is None:
        return Verdict(True, None, (), notes_on(recorded))
    other = _reasons(maker_of(recorded), maker_of(found), contradictory)
    if not contradictory and _other_parameters(recorded.get("parameters") or {}, found.get("parameters") or {}):
        other.append("other_parameters")
    if "best_effort" in (maker_of(recorded).level, maker_of(found).level):
        other.append("best_effort")
    if is_cut_search(recorded) and difference.field not in ("beams", "prompt_logprobs"):
        other.append("cut_by_deadline")
    return Verdict(False, difference, tuple(other) or ("unexplained",), notes_on(recorded))


def refused(recorded: Answer, maker: Maker, *, contradictory: bool = False) -> Verdict:
    """The request is not accepted by another maker."""
    reasons = (*_reasons(maker_of(recorded), maker, contradictory), "parameters_not_accepted")
    return Verdict(False, None, reasons, notes_on(recorded))


def maker_of(answer: Answer) -> Maker:
    made = answer["reproducibility"]
    return Maker(answer["model"], made["fingerprint"], made.get("version"), made["level"])


def answers_another(parameters: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether an answer with these effective parameters is none to a request that gave these values."""
    known = (parameters.keys() & given.keys()) - CHANGE_NO_TEXT
    return _differ(given, parameters, known)


def is_same_maker(one: Maker, other: Maker) -> bool:
    """Whether nothing that is known of them tells them apart."""
    return not _reasons(one, other, contradictory=False)


def notes_on(recorded: Answer) -> tuple[Note, ...]:
    notes: list[Note] = []
    if is_cut(recorded):
        notes.append("cut_by_deadline")
    if maker_of(recorded).level == "best_effort":
        notes.append("best_effort")
    return tuple(notes)


def _reasons(recorded: Maker, found: Maker, contradictory: bool) -> list[Reason]:
    reasons: list[Reason] = ["contradictory_record"] if contradictory else []
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
    return _differ(recorded, found, known)


def _differ(some: Mapping[str, Any], others: Mapping[str, Any], names: Set[str]) -> bool:
    return any(_as_json(some[name]) != _as_json(others[name]) for name in names)


def _as_json(value: Any) -> Any:
    """The value with lists for tuples, as it is once it was written and read."""
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_json(item) for item in value]
    return value
