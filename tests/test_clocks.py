"""No deadline and no duration hangs on a clock that somebody may set: read from the syntax trees."""

import ast
from collections.abc import Iterator

from tests.source_files import SourceFile, source_files

SET_BY_PEOPLE = frozenset({"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"})
OF_DATES = frozenset({"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp"})
ALLOWED = {
    "service/logs.py": "when a line was written",
    "service/context.py": "when the server started, as OpenAI's lists of models tell it",
    "service/openai_responses.py": "when an answer was made, as OpenAI's answers tell it",
    "service/tracing.py": "when a request was, as collectors of traces are told; how long it took is of another clock",
}
"""Files that tell people the time, and of what."""


def readers(file: SourceFile) -> Iterator[str]:
    """Each place that reads the time of day, wherever its name comes from."""
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"{alias.name}" for alias in node.names if alias.name in SET_BY_PEOPLE)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if (owner == "time" and node.attr in SET_BY_PEOPLE) or (
                owner in ("datetime", "date") and node.attr in OF_DATES
            ):
                yield f"{owner}.{node.attr}"


def test_readers_are_found_in_every_form() -> None:
    text = "import time\nfrom time import time_ns\ntime.time()\ntime.monotonic()\ndatetime.now(UTC)\nx.time()\n"

    assert ["time_ns", "time.time", "datetime.now"] == list(readers(SourceFile("a.py", text)))


def test_only_what_tells_people_the_time_reads_it() -> None:
    found = {file.name for file in source_files("model", "service") if list(readers(file))}

    assert set(ALLOWED) == found
