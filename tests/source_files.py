"""The project's Python files, parsed: what the tests of shape and of imports read."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """`name` is the path from the repository's root, with slashes."""

    name: str
    text: str

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the syntax tree."""
        return _nodes(self.text)

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text)))


def source_files(*folders: str) -> Iterator[SourceFile]:
    """Every Python file below these folders of the repository, in order."""
    for folder in folders:
        yield from _files_of(folder)


@cache
def _files_of(folder: str) -> tuple[SourceFile, ...]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return tuple(SourceFile(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths)
