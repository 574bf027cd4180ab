"""One target without coverage: `python -m tests.fuzz.plain TARGET SECONDS HANG_S FOLDER`. Ends at the first fault."""

import faulthandler
import hashlib
import sys
import time
from pathlib import Path

from tests.fuzz.mutations import mutations
from tests.fuzz.target import bounded
from tests.fuzz.targets import TARGETS

TOLD_EVERY_S = 10.0


def main(name: str, seconds: float, hang_s: float, folder: Path) -> None:
    target = TARGETS[name]()
    run = bounded(target.make())
    began = told = time.monotonic()
    for count, data in enumerate(mutations(target, time.time_ns()), start=1):
        (folder / "current").write_bytes(data)
        faulthandler.dump_traceback_later(hang_s, exit=True)
        try:
            run(data)
        except BaseException:
            (folder / f"crash-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
            raise
        now = time.monotonic()
        if now - told > TOLD_EVERY_S:
            sys.stderr.write(f"{count} inputs in {now - began:.0f} s\n")
            told = now
        if now - began > seconds:
            faulthandler.cancel_dump_traceback_later()
            return


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
