"""Which prompts move on in a step, and by how many rows: what the step's budget leaves, divided between keys.

Knows requests and how far their prompts have run; knows nothing of pages, times or tensors.
Always: each key whose prompts wait gets its share, whoever came first; what a key does not need goes to the others;
prompts of one key run in the order in which they were admitted. No bit of an answer depends on it.
"""

from dataclasses import dataclass

from service.sequence import Active

SCORED_ROWS = 64
"""Most prompt rows of a step that are scored or read, of all requests: their logits are held in memory together."""


@dataclass(slots=True)
class _Room:
    """Rows that may still be taken, and how many of them may be scored."""

    rows: int
    scored: int

    def share(self, of: int) -> "_Room":
        """One of so many equal ones, rounded up."""
        return _Room(-(-self.rows // of), -(-self.scored // of))

    def most_for(self, active: Active, start: int) -> int:
        """How many of them this request may take, from where it stands."""
        most = min(self.rows, active.context_rows - start)
        if active.asks_every_row or active.retraces:
            most = min(most, self.scored + max(0, active.first_asked - start))
        return most

    def take(self, active: Active, start: int, count: int) -> None:
        self.rows -= count
        if active.asks_every_row or active.retraces:
            self.scored -= active.asked(start, start + count)


class PromptRows:
    """The prompt rows of one step."""

    def __init__(self, rows: int) -> None:
        self._whole = _Room(rows, SCORED_ROWS)
        self._left = _Room(rows, SCORED_ROWS)
        self._of_keys: dict[str | None, list[Active]] = {}

    def add(self, active: Active) -> None:
        """A request whose prompt has not run to its end."""
        self._of_keys.setdefault(active.request.key_id, []).append(active)
        start = _start_of(active)
        self._left.take(active, start, self._left.most_for(active, start))

    def has_room_for(self, active: Active) -> bool:
        """Whether another request would get rows: those that nobody else needs, or its key's share."""
        return active.request.key_id not in self._of_keys or self._left.most_for(active, _start_of(active)) > 0

    def divided(self) -> dict[Active, int]:
        """The rows of each request that gets any."""
        counts: dict[Active, int] = {}
        for done, actives in enumerate(self._of_keys.values()):
            self._give(actives, self._whole.share(len(self._of_keys) - done), counts)
        for actives in self._of_keys.values():
            self._give(actives, self._whole.share(1), counts)
        return counts

    def _give(self, actives: list[Active], room: _Room, counts: dict[Active, int]) -> None:
        for active in actives:
            start = _start_of(active) + counts.get(active, 0)
            if count := room.most_for(active, start):
                counts[active] = counts.get(active, 0) + count
                room.take(active, start, count)
                self._whole.take(active, start, count)


def _start_of(active: Active) -> int:
    """Where its next rows begin; before it is admitted, before what may be cached."""
    return active.sequences[0].lease.length if active.sequences else active.first_asked
