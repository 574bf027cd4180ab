"""The Dockerfile as a list of instructions.

Knows the few forms that the project's own file uses, and nothing of what they do.
Always: comments are left out, continued lines are one, and the order is the file's.
"""

import re
import shlex
from pathlib import Path

from tests.source_files import ROOT

DOCKERFILE = ROOT / "Dockerfile"
Instruction = tuple[str, str]
"""Its name in capitals, and all that follows."""


def read_stages(path: Path = DOCKERFILE) -> list[list[Instruction]]:
    """The instructions of each stage, `FROM` first."""
    lines = (
        re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    )
    found: list[list[Instruction]] = []
    for line in filter(str.strip, lines):
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def pairs(rest: str) -> dict[str, str]:
    """The values that an ENV, ARG or LABEL names, quotes taken off; an ARG without one is empty."""
    return {name: value for name, _, value in (pair.partition("=") for pair in shlex.split(rest))}
