"""What a target of fuzzing is."""

from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes. What `make` returns raises nothing for any of them; anything raised is a fault."""

    seeds: tuple[bytes, ...]
    """Inputs that come far."""
    words: tuple[bytes, ...]
    """What is worth putting in somewhere."""
    make: Callable[[], Run]
    most_bytes: int
