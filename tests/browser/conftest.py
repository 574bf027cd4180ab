"""A real browser before a real server. Whatever the page does, its console must stay clean: the policy refuses loudly.

Nothing here runs an event loop of its own: Playwright's has the thread for as long as the browser lives.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from service.settings import Settings
from tests.browser.driving import write
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 20_000


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium: `make chromium` brings Debian's")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=4096))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 8 << 20})) as server:
        yield server


@dataclass
class Visit:
    """A page that is open, and what went wrong on it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def open(self, address: str = "/") -> Page:
        self.page.goto(address if address.startswith("http") else self.url + address)
        self.page.locator(".group").first.wait_for(state="attached")
        return self.page


@contextmanager
def visiting(browser: Browser, url: str) -> Iterator[Visit]:
    """A tab of its own, with nothing kept from others. Nothing may have gone wrong on it."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(PATIENCE_MS)
    visit = Visit(context.new_page(), url)
    visit.page.on("pageerror", lambda error: visit.faults.append(str(error)))
    visit.page.on("console", lambda message: visit.faults.append(message.text) if message.type == "error" else None)
    visit.page.on("request", lambda each: visit.faults.append(each.url) if not each.url.startswith(url) else None)
    yield visit
    context.close()
    assert [] == visit.faults


@pytest.fixture
def visit(browser: Browser, live: Live) -> Iterator[Visit]:
    with visiting(browser, live.url) as visit:
        yield visit


@pytest.fixture(scope="package")
def written(browser: Browser, live: Live) -> Iterator[Page]:
    """A page with a text, for those who look at it and leave the text as it is."""
    with visiting(browser, live.url) as visit:
        write(visit.open())
        yield visit.page
