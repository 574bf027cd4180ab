"""How much each key holds of something that all keys draw on.

Knows ids of keys and amounts; knows nothing of what is held. Always: a key may hold half of what the others leave, so
whatever one does, another may still have a quarter of all; keys that hold nothing are not kept.
"""


class Shares:
    """Who holds how much. Callers without a key are the only ones there are, and may hold all of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str | None, int] = {}
        self._total = 0

    def of(self, key_id: str | None) -> int:
        """What the key holds."""
        return self._held.get(key_id, 0)

    def most_of(self, key_id: str | None) -> int:
        """What the key may hold now."""
        left = self._most - self._total + self.of(key_id)
        return left if key_id is None else (left + 1) // 2

    def add(self, key_id: str | None, amount: int) -> None:
        """Have the key hold so much more or, below 0, less. Whether it may is for the caller to ask."""
        held = self.of(key_id) + amount
        self._total += amount
        if held:
            self._held[key_id] = held
        else:
            self._held.pop(key_id, None)
