"""One option of the server as the command line shows it.

Knows names and texts; reads nothing. Always: flag and variable are made from the one name that a field has.
"""

from dataclasses import dataclass
from typing import Any

PREFIX = "TANE_"


@dataclass(frozen=True, slots=True)
class Option:
    """One field of `Settings` as the command line shows it."""

    name: str
    description: str
    allowed: str
    """What a value may be, in words that follow "must be"."""
    default: Any
    metavar: str
    repeats: bool = False
    """Whether the flag may be given several times."""
    is_switch: bool = False
    """Whether the flag stands without a value."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()
