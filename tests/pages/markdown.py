"""The pages of the documentation, taken apart into headings, links and code blocks.

Knows Markdown as the repository's hosts show it; knows nothing of what a block is for.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.source_files import ROOT

PARSER = MarkdownIt("commonmark").enable("table")
MARK = re.compile(r"<!-- (.*?) -->")
NOT_RUN = "not run: "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the mark before it: a comment, which readers do not see, or nothing."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it is not run; empty where it is."""
        return self.mark.removeprefix(NOT_RUN) if self.mark.startswith(NOT_RUN) else ""


def page_names() -> list[str]:
    """The README and every page of `docs`."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def blocks_of(page: str, text: str) -> list[Block]:
    """Every fenced block, in order. A mark is a comment on the line above."""
    blocks, mark = [], ""
    for token in PARSER.parse(text):
        if token.type == "fence":
            assert token.map is not None
            blocks.append(Block(page, token.map[0] + 1, token.info.strip(), token.content, mark))
        found = MARK.fullmatch(token.content.strip()) if token.type == "html_block" else None
        mark = found[1] if found else ""
    return blocks


@cache
def blocks(page: str) -> tuple[Block, ...]:
    return tuple(blocks_of(page, _text(page)))


@cache
def anchors(page: str) -> frozenset[str]:
    """What `#` may name on this page: its headings in lower case, without punctuation, with hyphens for spaces."""
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _titles(page)]
    seen: Counter[str] = Counter()
    named = []
    for slug in slugs:
        named.append(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(named)


def links(page: str) -> Iterator[str]:
    """Addresses of links and pictures as they are written."""
    for token in PARSER.parse(_text(page)):
        for child in token.children or ():
            address = child.attrGet("href") or child.attrGet("src")
            if address:
                yield str(address)


def broken_links(page: str) -> list[str]:
    """Those that lead to no file of the repository, or to no heading of a page. Other hosts are not asked."""
    return [link for link in links(page) if "://" not in link and not _leads_somewhere(page, link)]


def _leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.is_file() or not target.resolve().is_relative_to(ROOT.resolve()):
        return False
    return not anchor or anchor in anchors(_name(target))


def _name(path: Path) -> str:
    return path.resolve().relative_to(ROOT.resolve()).as_posix()


def _titles(page: str) -> Iterator[str]:
    tokens: list[Token] = PARSER.parse(_text(page))
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            yield token.content


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
