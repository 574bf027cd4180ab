"""Where the requests of a level were answered, when servers say so: what each replica took on, and which requests came
back to the one that had seen their like. Pure values and arithmetic.

Always: a request counts as one that could come back when an earlier one carried the same `x-session-id`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Answered(Protocol):
    """One request."""

    @property
    def started(self) -> float: ...

    @property
    def affinity(self) -> str | None:
        """Its `x-session-id`."""

    @property
    def replica(self) -> str | None:
        """Who answered, when the server says."""

    @property
    def generated_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica answered."""

    requests: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Places:
    """The requests of a level by the replica that answered them."""

    replicas: Mapping[str, ReplicaLoad]
    """By their names, in order."""
    could_return: int
    """Requests that belong with an earlier one."""
    returned: int
    """Of these, those that came to the replica of the last one they belong with."""

    @property
    def share(self) -> float | None:
        """Of the requests that could come back; None where there were none."""
        return self.returned / self.could_return if self.could_return else None


def places_of(records: Sequence[Answered]) -> Places | None:
    """None where no server named itself. Requests that nobody answered count nowhere."""
    named = sorted((record for record in records if record.replica is not None), key=lambda record: record.started)
    if not named:
        return None
    last: dict[str, str] = {}
    could_return = returned = 0
    loads: dict[str, ReplicaLoad] = {}
    for record in named:
        replica = record.replica or ""
        before = loads.get(replica, ReplicaLoad(0, 0))
        loads[replica] = ReplicaLoad(before.requests + 1, before.generated_tokens + record.generated_tokens)
        if record.affinity is None:
            continue
        if record.affinity in last:
            could_return += 1
            returned += last[record.affinity] == replica
        last[record.affinity] = replica
    return Places(dict(sorted(loads.items())), could_return, returned)
