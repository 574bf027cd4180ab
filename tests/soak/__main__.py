"""The soak: `python -m tests.soak [--minutes 30] [--callers 4] [OUT.json] [-- OPTIONS OF tane serve]`.

A server of its own under mixed load: figures, and beside OUT.json a plot of what was seen.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.soak.report import draw, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--every-s", type=float, default=5.0)
    parser.add_argument("options", nargs="*", help="of tane serve, after --")
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60
    report = soak(seconds, callers=arguments.callers, every_s=arguments.every_s, options=arguments.options)
    text = json.dumps(report.figures, indent=2) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")
        draw(report, arguments.out.with_suffix(".svg"))
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
