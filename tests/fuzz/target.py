"""What a target of fuzzing is."""

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

Run = Callable[[bytes], None]
MOST_CPU_S = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes. What `make` returns raises nothing for any of them; anything raised is a fault."""

    seeds: tuple[bytes, ...]
    """Inputs that come far."""
    words: tuple[bytes, ...]
    """What is worth putting in somewhere."""
    make: Callable[[], Run]
    most_bytes: int


def bounded(run: Run) -> Run:
    """The same, at fault also when it takes long. What other processes take does not count."""

    def run_bounded(data: bytes) -> None:
        began = process_time()
        run(data)
        took_s = process_time() - began
        if took_s > MOST_CPU_S:
            raise AssertionError(f"it took {took_s:.1f} s")

    return run_bounded
