"""Every block of the README and of `docs` runs, on the default model, and gives what the page shows."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.client import TaneClient
from service.settings import Settings
from tests.free_port import free_port
from tests.live import Live, live_server
from tests.pages.markdown import Block, blocks, page_names
from tests.pages.shown import json_differences, missing_lines
from tests.pages.test_pages import runs
from tests.pages.workshop import Workshop

CACHE_BYTES = 64 << 20
CODE = ("sh", "python")
PAGES = [page for page in page_names() if any(runs(block) and block.language in CODE for block in blocks(page))]


@pytest.fixture(scope="module")
def live(default_model_path: Path) -> Iterator[Live]:
    settings = {"model": str(default_model_path), "kv_cache_bytes": 4 * CACHE_BYTES}
    with live_server(Settings.load({}, settings)) as server:
        yield server


@pytest.fixture
def workshop(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A folder for one page, and a server that has no sessions of another."""
    with TaneClient(live.url) as client:
        for session in client.sessions():
            client.delete_session(session.id)
    environment = {"TANE_KV_CACHE_BYTES": str(CACHE_BYTES)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Workshop(tmp_path, live.url.removeprefix("http://"), free_port, environment)


def accepted(block: Block, live: Live) -> None:
    """The body that is shown gets an answer."""
    path = block.mark.removeprefix("body of POST ")
    answer = httpx.post(f"{live.url}{path}", json=json.loads(block.text), timeout=60)

    assert 200 == answer.status_code, f"{block.place}: {answer.text}"


def shown_as_it_came(block: Block, printed: str) -> None:
    if block.language == "json":
        assert [] == list(json_differences(json.loads(block.text), json.loads(printed))), block.place
    else:
        assert [] == missing_lines(block.text, printed), f"{block.place}:\n{printed}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_and_give_what_it_shows(page: str, workshop: Workshop, live: Live) -> None:
    printed = ""
    for block in filter(runs, blocks(page)):
        if block.mark == "output":
            shown_as_it_came(block, printed)
        elif block.mark.startswith("body of "):
            accepted(block, live)
        elif block.language in CODE:
            printed = workshop.run(block)
