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
    place = chance.randint(0, len(data))
    end = min(place + chance.randint(1, MOST_CUT), len(data))
    match chance.randrange(7):
        case 0:
            return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        case 1:
            return (
                data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
                if place < end
                else data
            )
        case 2:
            return data[:place] + data[end:]
        case 3:
            return data[:place] + data[place:end] * 2 + data[end:]
        case 4:
            return data[:place] + chance.choice(target.words) + data[place:]
        case 5:
            word = chance.choice(target.words)
            return data[:place] + word + data[place + len(word) :]
        case _:
            other = chance.choice(target.seeds)
            return data[:place] + other[chance.randint(0, len(other)) :]
