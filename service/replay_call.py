"""What a client asks of `POST /replay`, and the verdict as a value.

Knows the wire's field names; opens no connection. Always: what a newer server adds is left in `Replay.raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.answers import Response
from service.calls import Call, known, read_response
from service.replay_difference import Difference


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether a record still holds. `raw` is the JSON object as it came."""

    equal: bool
    first_difference: Difference | None
    """Where the answers part first; None where they are equal, and where there is no new answer."""
    reasons: tuple[str, ...]
    """What may explain the difference."""
    notes: tuple[str, ...]
    """What is to be known of the record."""
    dropped: tuple[str, ...]
    """Recorded fields that are never replayed, since they must change no text."""
    refusal: Mapping[str, Any] | None
    """Why the server did not run the request, when it did not."""
    response: Response | None
    """The new answer."""
    raw: Mapping[str, Any]


def replay(record: Mapping[str, Any], model: str | None) -> Call[Replay]:
    return Call("POST", "/replay", read_replay, record if model is None else {**record, "model": model})


def read_replay(answer: Mapping[str, Any]) -> Replay:
    """Raises KeyError or TypeError for anything but the answer of `POST /replay`."""
    difference, new = answer["first_difference"], answer["answer"]
    return Replay(
        equal=answer["equal"],
        first_difference=None if difference is None else known(Difference, difference),
        reasons=tuple(answer["reasons"]),
        notes=tuple(answer["notes"]),
        dropped=tuple(answer["dropped"]),
        refusal=answer["refusal"],
        response=None if new is None else read_response(new),
        raw=answer,
    )
