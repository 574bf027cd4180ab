"""The version is written once, and the changelog speaks of it."""

import re
from importlib.metadata import version
from pathlib import Path

import service

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
HEADING = re.compile(r"^## \[(?P<version>[^]]+)\]", re.MULTILINE)


def test_the_changelog_begins_with_this_version() -> None:
    headings = HEADING.findall(CHANGELOG.read_text(encoding="utf-8"))

    assert service.__version__ == headings[0]


def test_the_installed_distribution_has_this_version() -> None:
    assert service.__version__ == version("tane")
