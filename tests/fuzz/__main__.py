"""Fuzzing: `python -m tests.fuzz [TARGET ...] [--seconds 600] [--jobs 2] [--out FOLDER]`.

Each target in a process of its own, so that one that hangs or takes all memory is found and ended. With atheris
(`pip install 'atheris>=3,<4'`) inputs are led by coverage. Progress is on stderr; what was at fault is in the folder.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.source_files import ROOT

HANG_S = 120
"""On the clock, while others may use the machine; `tests.fuzz.target` bounds what an input takes itself."""
MOST_RESIDENT_MB = 1024
MOST_ADDRESSES = 8 << 30
MOST_FAULTS = 20
"""Of one target, after which there is enough to mend."""


def fuzz(name: str, seconds: float, out: Path) -> int:
    """How many faults of the target were found. Goes on after each with what time is left."""
    folder = out / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]()
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    (folder / "words").write_text("".join(f'"{word}"\n' for word in words), encoding="ascii")
    until = time.monotonic() + seconds
    faults = 0
    while (left := int(until - time.monotonic())) > 0 and faults < MOST_FAULTS:
        faults += _run(name, left, folder, target.most_bytes) != 0
    return faults


def _run(name: str, seconds: int, folder: Path, most_bytes: int) -> int:
    if find_spec("atheris"):
        command = [
            *(sys.executable, "-m", "tests.fuzz.guided", name, str(folder / "corpus")),
            *(f"-max_total_time={seconds}", f"-timeout={HANG_S}", f"-rss_limit_mb={MOST_RESIDENT_MB}"),
            *(f"-max_len={most_bytes}", f"-dict={folder / 'words'}", f"-artifact_prefix={folder}/"),
            *("-print_final_stats=1", "-report_slow_units=30", "-reload=0"),
        ]
    else:
        command = [sys.executable, "-m", "tests.fuzz.plain", name, str(seconds), str(HANG_S), str(folder)]
    with (folder / "log").open("ab") as log:
        process = subprocess.run(command, cwd=ROOT, stderr=log, stdout=log, check=False, preexec_fn=_bound)
    return process.returncode


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS) + "; all by default")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--out", type=Path, default=Path("build", "fuzz"))
    arguments = parser.parse_args()
    names = arguments.targets or [*TARGETS]
    shutil.rmtree(arguments.out, ignore_errors=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        faults = list(pool.map(lambda name: fuzz(name, arguments.seconds, arguments.out), names))
    for name, count in zip(names, faults, strict=True):
        sys.stderr.write(f"{name}: {count} faults\n")
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
