"""What is opened: views that come late or not at all, links that cannot be followed, tabs beside each other."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Visit
from tests.browser.driving import PROMPT, finished, write
from tests.live import Live

pytestmark = pytest.mark.slow


def link_of(request: Any) -> str:
    """The part of an address that holds this request."""
    text = base64.urlsafe_b64encode(json.dumps({"request": request, "fingerprint": ""}).encode()).decode()
    return f"#write/{text.rstrip('=')}"


def go_to(page: Page, hash_: str) -> None:
    """As a person does who pastes an address into an open tab."""
    page.evaluate("(hash) => { location.hash = hash; }", hash_)


def held_back(page: Page, address: str) -> list[Route]:
    """What the page asks for at this address and is not given yet."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(address, hold)
    return held


@pytest.fixture(scope="module")
def tab(browser: Browser, live: Live) -> Iterator[Page]:
    """A tab that stays open while one link after the other is followed in it."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(live.url)
        page.locator(".group").first.wait_for()
        yield page


def test_the_skip_link_leads_to_the_view_that_is_shown(visit: Visit) -> None:
    page = visit.open("/#beams")
    page.locator("#view-beams form").wait_for()

    page.locator(".skip").focus()
    page.keyboard.press("Enter")

    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("#view-beams")).to_be_visible()
    expect(page.locator("#view-write")).to_be_hidden()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"prompt": "x", "seed": "5", "max_new_tokens": 9, "resume": {"token_ids": [40000, 5]}}, "token_ids"),
        ([], "holds no request"),
    ],
)
def test_a_link_that_cannot_be_followed_says_so_in_an_open_tab(tab: Page, request_: Any, message: str) -> None:
    tab.evaluate("document.getElementById('problem').textContent = ''")

    go_to(tab, link_of(request_))

    expect(tab.locator("#problem")).to_contain_text(message)


def test_a_link_that_was_cut_says_so(visit: Visit) -> None:
    page = visit.open(link_of({"prompt": "x" * 60})[:40])

    expect(page.locator("#problem")).to_have_text("This link holds no request, or only part of one.")


def test_a_view_that_comes_after_another_was_chosen_asks_nothing(visit: Visit) -> None:
    page = visit.open()
    held = held_back(page, "**/ui/js/numbers.js")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/metrics") else None)
    with page.expect_request("**/ui/js/numbers.js"):
        go_to(page, "#numbers")
    go_to(page, "#write")
    expect(page.locator("#view-write")).to_be_visible()

    with page.expect_response("**/ui/js/numbers.js"):
        held[0].continue_()
    page.locator("#view-numbers .numbers").wait_for(state="attached")
    write(page, max_new_tokens="2")

    assert [] == asked


def test_a_view_that_is_chosen_twice_while_it_comes_is_there_once(visit: Visit) -> None:
    page = visit.open()
    held = held_back(page, "**/ui/js/beams.js")
    with page.expect_request("**/ui/js/beams.js"):
        go_to(page, "#beams")
    for name in ("write", "beams"):
        go_to(page, f"#{name}")
        expect(page.locator(f"#view-{name}")).to_be_visible()

    held[0].continue_()

    page.locator("#view-beams form").first.wait_for()
    page.evaluate("import('/ui/js/beams.js').then(() => new Promise((done) => setTimeout(done)))")
    expect(page.locator("#view-beams form")).to_have_count(1)


def test_a_view_that_cannot_be_fetched_says_so(browser: Browser, live: Live) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/ui/js/numbers.js", lambda route: route.abort())
        page.goto(live.url)
        page.locator(".group").first.wait_for()

        go_to(page, "#numbers")

        expect(page.locator("#view-problem")).to_be_visible()


def session_of(page: Page) -> str:
    """The session in which this page writes."""
    with page.expect_request(re.compile("/generate$")) as sent:
        page.click("#go")
    finished(page)
    return str(json.loads(sent.value.post_data or "")["session_id"])


def ready(page: Page) -> Page:
    page.fill("#prompt", PROMPT)
    page.fill("#field-max_new_tokens", "2")
    return page


def test_a_duplicated_tab_has_a_session_of_its_own(visit: Visit) -> None:
    page = ready(visit.open())
    first = session_of(page)

    with page.expect_popup() as opened:
        page.evaluate("void window.open('/')")

    twin = ready(opened.value)
    assert first != session_of(twin)
    assert first == session_of(page)


def test_a_tab_that_is_loaded_again_keeps_its_session(visit: Visit) -> None:
    page = ready(visit.open())
    first = session_of(page)

    page.reload()

    assert first == session_of(ready(page))
