"""One target under libFuzzer, which looks for inputs that reach new code: `python -m tests.fuzz.guided TARGET FLAGS`.

Needs atheris. Ends at the first fault, whose input is kept where the flags say.
"""

import gc
import sys
from pathlib import Path
from types import FunctionType

import atheris

from tests.fuzz.target import bounded
from tests.fuzz.targets import TARGETS
from tests.source_files import ROOT

PACKAGES = tuple(f"{ROOT / name}/" for name in ("model", "service"))


def instrument() -> None:
    """Have our functions tell which branches they take: editable modules escape atheris's own way."""
    ours = [each for each in gc.get_objects() if isinstance(each, FunctionType) and _is_ours(each)]
    for function in ours:
        atheris.instrument_func(function)


def _is_ours(function: FunctionType) -> bool:
    return str(Path(function.__code__.co_filename).absolute()).startswith(PACKAGES)


def main() -> None:
    """Takes the name of the target off the command line; the rest is for libFuzzer."""
    target = TARGETS[sys.argv.pop(1)]()
    instrument()
    atheris.Setup(sys.argv, bounded(target.make()))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
