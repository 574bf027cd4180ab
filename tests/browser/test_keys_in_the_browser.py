"""A server with keys: the page loads without one, asks for it, and keeps it in its tab."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from service.settings import Settings
from tests.browser.driving import finished
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

pytestmark = pytest.mark.slow
KEY = "a-key-for-the-page"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "keys.txt").write_text(f"{KEY}\n")
    path = write_tiny_gguf(folder / "tiny.gguf", shape=TinyShape(context=512))
    given = {"model": str(path), "kv_cache_bytes": 4 << 20, "keys_file": str(folder / "keys.txt")}
    with live_server(Settings.load({}, given)) as server:
        yield server


@pytest.fixture
def page(browser: Browser, guarded: Live) -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(guarded.url)
        expect(page.locator("#key-dialog")).to_be_visible()
        yield page


def let_in(page: Page) -> None:
    """Give the key that the page asks for, and wait for what it then shows."""
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    page.locator(".group").first.wait_for()


def test_the_right_key_lets_in(page: Page) -> None:
    let_in(page)
    page.fill("#prompt", "Hello")
    page.fill("#field-max_new_tokens", "5")

    page.click("#go")

    finished(page)


def test_a_wrong_key_is_asked_for_again(page: Page) -> None:
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")

    expect(page.locator("#key-problem")).to_be_visible()
    expect(page.locator("#key-dialog")).to_be_visible()


def test_the_key_is_kept_in_this_tab_alone(page: Page) -> None:
    let_in(page)

    assert page.evaluate("Object.values(sessionStorage)") == [KEY]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_code_names_no_key(page: Page) -> None:
    let_in(page)
    page.fill("#prompt", "Hello")
    page.fill("#field-max_new_tokens", "5")
    page.click("#go")
    finished(page)

    page.click("[data-copy=curl]")

    code = page.locator("#snippet").text_content() or ""
    assert "$TANE_API_KEY" in code
    assert KEY not in code


def test_a_key_that_no_request_can_carry_is_refused_before_it_is_kept(page: Page) -> None:
    page.fill("#key", f"{KEY}\u200b")

    page.keyboard.press("Enter")

    expect(page.locator("#key-problem")).to_contain_text("ASCII")
    expect(page.locator("#key-dialog")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("name", ["sessions", "numbers"])
def test_who_gives_no_key_is_not_asked_again_by_a_view_that_looks_each_second(page: Page, name: str) -> None:
    let_in(page)
    page.clock.install()
    page.evaluate("sessionStorage.clear()")
    page.evaluate("(name) => { location.hash = name; }", name)
    expect(page.locator("#key-dialog")).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.keyboard.press("Escape")
    expect(page.locator(f"#view-{name} .problem")).to_contain_text("No key was given")
    page.clock.run_for(10_000)

    assert [] == [url for url in asked if "/ui/" not in url]
    expect(page.locator("#key-dialog")).to_be_hidden()
