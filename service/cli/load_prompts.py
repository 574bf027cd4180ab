"""What a load test asks: texts, lengths and times of arrival. Pure functions of names; knows no server.

Always: the same name gives the same text, length or times, on any machine; another name gives others.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

_COMMON = (
    "apple bread bridge brother butter castle chair church cloud coffee corner cotton country daughter desert "
    "dinner doctor dream engine evening farmer father field finger fire fish flower forest friend garden glass "
    "gold grass green hand harbor heart horse hotel house island kitchen letter light machine market meadow "
    "metal milk minute mirror money moon morning mother mountain music narrow night north ocean office orange "
    "paper pencil people picture planet pocket poem queen quiet rain river road room school season shadow ship "
    "silver sister smoke snow soldier south spring square station stone storm story street sugar summer sun "
    "table teacher thunder tower train travel valley village voice water weather window winter woman wood yellow"
)
WORDS = tuple(_COMMON.split())
"""Each is one token, with its space, in usual vocabularies."""


@dataclass(frozen=True, slots=True)
class Length:
    """A number of tokens: each whole number from `low` to `high` is as likely."""

    low: int
    high: int

    def draw(self, name: str) -> int:
        return random.Random(f"length {name}").randint(self.low, self.high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def prompt_of(tokens: int, name: str, *, prefix: str = "The") -> str:
    """About so many tokens of text that begin with those of `prefix`."""
    words = random.Random(name)
    return prefix + "".join(f" {words.choice(WORDS)}" for _ in range(tokens - len(prefix.split())))


def edited(prompt: str, name: str) -> str:
    """The text with one word after the first replaced by another, at a place that the name decides."""
    words, chance = prompt.split(" "), random.Random(f"edit {name}")
    place = chance.randrange(1, len(words))
    words[place] = chance.choice([word for word in WORDS if word != words[place]])
    return " ".join(words)


def arrivals(rate: float, count: int, name: str) -> Iterator[float]:
    """Seconds from the start at which requests arrive: a Poisson process of `rate` arrivals per second."""
    chance, now = random.Random(f"arrivals {name}"), 0.0
    for _ in range(count):
        now += chance.expovariate(rate)
        yield now
