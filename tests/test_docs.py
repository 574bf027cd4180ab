"""What the documents name is there: every file, and every test that is said to hold a law."""

import re
from collections.abc import Iterator

import pytest

from tests.pages.markdown import page_names
from tests.source_files import ROOT

DOCUMENTS = ("CONTRIBUTING.md", "CHANGELOG.md", *page_names())
PLACE = re.compile(r"`((?:\.ci|deploy|docs|model|service|tests)/[\w./]*)(?:::(\w+))?`")
"""A path in the repository, and perhaps a test in it."""


def places(document: str) -> Iterator[tuple[str, str]]:
    for found in PLACE.finditer((ROOT / document).read_text(encoding="utf-8")):
        yield found[1], found[2] or ""


def is_there(path: str, test: str) -> bool:
    file = ROOT / path
    return f"def {test}(" in file.read_text(encoding="utf-8") if test else file.exists()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_test_that_is_named_exists(document: str) -> None:
    assert [] == [place for place in places(document) if not is_there(*place)]


def test_every_law_names_a_test() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    laws = re.findall(r"^\| (L\d) .*$", text, flags=re.MULTILINE)
    held = re.findall(r"^\| (L\d) .*`tests/.*$", text, flags=re.MULTILINE)

    assert ["L1", "L2", "L3", "L4", "L5", "L6"] == laws == held
