"""Inputs made out of others by chance that is repeatable: the same seed gives the same inputs."""

import random
from collections.abc import Iterator

from tests.fuzz.target import Target

MOST_EDITS = 6
MOST_CUT = 64


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """Endlessly."""
    chance = random.Random(seed)
    while True:
        data = chance.choice(target.seeds)
        for _ in range(chance.randint(1, MOST_EDITS)):
            data = _edited(data, target, chance)
        yield data[: target.most_bytes]


def _edited(data: bytes, target: Target, chance: random.Random) -> bytes:
    """One piece changed, taken out, doubled, put in, written over, or all that follows taken from elsewhere."""
    place = chance.randint(0, len(data))
    end = min(place + chance.randint(1, MOST_CUT), len(data))
    word = chance.choice(target.words)
    other = chance.choice(target.seeds)
    byte = data[place] if place < end else 0
    kinds = (
        (bytes([chance.randrange(256)]), place + 1),
        (bytes([byte ^ 1 << chance.randrange(8)]), place + 1),
        (b"", end),
        (data[place:end] * 2, end),
        (word, place),
        (word, place + len(word)),
        (other[chance.randint(0, len(other)) :], len(data)),
    )
    piece, after = chance.choice(kinds)
    return data[:place] + piece + data[after:]
