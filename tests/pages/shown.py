"""What a page shows as the output of a block, compared with what the block really gave."""

import json
import re
from collections.abc import Iterator
from typing import Any

VOLATILE = frozenset(
    {"id", "request_id", "timings", "idle_s", "created", "version", "fingerprint", "system_fingerprint"}
)
"""Other in each run or each release: only that they are there is compared."""


def json_differences(shown: Any, real: Any, at: str = "") -> Iterator[str]:
    """Where what is shown is not what came. Objects may be shown without some of their fields; lists are whole."""
    if isinstance(shown, dict) and isinstance(real, dict):
        for key, value in shown.items():
            if key not in real:
                yield f"{at}.{key} did not come"
            elif key not in VOLATILE:
                yield from json_differences(value, real[key], f"{at}.{key}")
    elif isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        for index, (one, other) in enumerate(zip(shown, real, strict=True)):
            yield from json_differences(one, other, f"{at}[{index}]")
    elif shown != real or type(shown) is not type(real):
        yield f"{at or 'the whole'} is {json.dumps(real, ensure_ascii=False)}"


def missing_lines(shown: str, real: str) -> list[str]:
    """Lines shown that did not come, in this order. "…" stands for anything in a line, and alone for any lines."""
    lines = iter(line.rstrip() for line in real.splitlines())
    return [line for line in _lines(shown) if not any(_pattern(line).fullmatch(each) for each in lines)]


def _lines(shown: str) -> Iterator[str]:
    for line in shown.splitlines():
        if line.strip() not in ("", "…"):
            yield line.rstrip()


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in line.split("…")))
