"""How many replicas the work that waits calls for.

Knows numbers, and of Ray only the names of what it is given, since Ray carries this file to where it decides. Always:
what is asked for is a number of replicas, which Ray bounds and delays.
"""

from collections.abc import Mapping
from typing import Any, Protocol

METRIC = "queued_tokens"
"""What replicas call the cache positions that their unfinished requests may come to hold."""


class ScalingContext(Protocol):
    """What Ray Serve tells a policy."""

    @property
    def target_num_replicas(self) -> int: ...

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """Each metric of each replica."""


class QueuedTokens:
    """Asks for one replica for every `per_replica` tokens."""

    def __init__(self, per_replica: float) -> None:
        self._per_replica = per_replica

    def __call__(self, context: ScalingContext) -> tuple[float, dict[str, Any]]:
        """As many replicas as there are while none has told how much waits."""
        told = (context.aggregated_metrics or {}).get(METRIC)
        if not told:
            return context.target_num_replicas, {}
        return sum(told.values()) / self._per_replica, {}
