"""Functions and files stay short enough to be read at once."""

import ast
from collections.abc import Iterator

import pytest

from tests.source_files import SourceFile, source_files

MOST_LINES = {"model": 300, "service": 300, "tests": 400}
"""For each folder; tests are long where their cases are many."""
LONGER_FILES: dict[str, str] = {
    "service/scheduler.py": "plan and commit work on the same few structures; apart they would share them all",
}
"""Files that may be longer, and why."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(file: SourceFile) -> Iterator[tuple[str, int]]:
    """Where each function is, and how many lines it has, from `def` to its end."""
    for node in file.nodes:
        if isinstance(node, Function):
            yield f"{file.name}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_functions_are_measured_from_def_to_end() -> None:
    text = '@cache\ndef f():\n    """One.\n\n    Two.\n    """\n    return 1\n'

    assert [("a.py:2 f", 6)] == list(functions_of(SourceFile("a.py", text)))


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = [entry for file in source_files("model", "service") for entry in functions_of(file)]

    assert [] == [f"{place}: {length}" for place, length in lengths if length > 60]


def test_nine_functions_in_ten_have_at_most_35_lines() -> None:
    lengths = sorted(length for file in source_files("model", "service") for _, length in functions_of(file))

    assert lengths[len(lengths) * 9 // 10] <= 35


@pytest.mark.parametrize(("folder", "most"), MOST_LINES.items())
def test_no_file_is_longer_than_it_may_be(folder: str, most: int) -> None:
    longer = {file.name: file.line_count for file in source_files(folder) if file.line_count > most}

    assert {} == {name: count for name, count in longer.items() if name not in LONGER_FILES}


@pytest.mark.parametrize("name", LONGER_FILES)
def test_only_files_that_need_it_may_be_longer(name: str) -> None:
    folder = name.partition("/")[0]
    (count,) = [file.line_count for file in source_files(folder) if file.name == name]

    assert count > MOST_LINES[folder]
