"""Every page can be reached, leads only to what is there, and says of each of its blocks what becomes of it."""

import json
import subprocess
from collections import Counter

import pytest
import yaml

from service.schemas import GenerateRequest, read
from tests.pages.markdown import Block, blocks, broken_links, links, page_names

LANGUAGES = {"sh", "python", "json", "yaml", "text"}
REASONS = {
    "installs what is needed, and tests it all",
    "needs a container engine",
    "needs a cluster",
    "needs a GPU",
    "needs the network",
    "needs models of your own",
    "takes minutes",
}
"""Why a block may stay out of the tests."""
NOT_RUN = {
    "README.md": 1,
    "docs/compression.md": 1,
    "docs/how/pruning.md": 1,
    "docs/how/quantisation.md": 1,
    "docs/models.md": 3,
    "docs/operating.md": 6,
    "docs/performance.md": 1,
    "docs/quick-start.md": 1,
}
"""How many blocks of each page stay out."""
GENERATE = "body of POST /generate"
MARKS = {"", "output", "refused", GENERATE, "body of POST /estimate", "body of POST /replay"}

every_page = pytest.mark.parametrize("page", page_names())


def runs(block: Block) -> bool:
    return not block.reason


@every_page
def test_every_link_leads_to_a_file_or_a_heading(page: str) -> None:
    assert [] == broken_links(page)


@every_page
def test_every_block_says_its_language(page: str) -> None:
    assert [] == [block.place for block in blocks(page) if block.language not in LANGUAGES]


@every_page
def test_every_mark_is_known(page: str) -> None:
    marks = {block.mark for block in blocks(page) if not block.reason} - MARKS

    assert set() == marks | ({block.reason for block in blocks(page) if block.reason} - REASONS)


@every_page
def test_every_block_can_be_read(page: str) -> None:
    for block in blocks(page):
        match block.language:
            case "python":
                compile(block.text, block.place, "exec")
            case "sh":
                subprocess.run(["bash", "-n", "-c", block.text], check=True)
            case "json":
                json.loads(block.text)
            case "yaml":
                yaml.safe_load(block.text)


@every_page
def test_a_block_of_json_is_a_body_or_an_output(page: str) -> None:
    assert [] == [block.place for block in blocks(page) if block.language == "json" and not block.mark]


@every_page
def test_bodies_of_generate_are_read_by_its_schema(page: str) -> None:
    for block in blocks(page):
        if block.mark == GENERATE:
            read(GenerateRequest, json.loads(block.text))


@every_page
def test_an_output_follows_what_is_run(page: str) -> None:
    astray, before = [], None
    for block in blocks(page):
        if block.mark != "output":
            before = block
        elif before is None or not runs(before) or before.language not in ("sh", "python"):
            astray.append(block.place)

    assert [] == astray


def test_the_blocks_that_stay_out_are_counted() -> None:
    staying = Counter(block.page for page in page_names() for block in blocks(page) if not runs(block))

    assert NOT_RUN == dict(staying)


def test_every_page_is_in_the_index() -> None:
    listed = {f"docs/{link.partition('#')[0]}" for link in links("docs/index.md")}

    assert set() == {page for page in page_names() if page.startswith("docs/")} - listed - {"docs/index.md"}
