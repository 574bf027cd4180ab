"""A text that goes on, is stopped or gives way to another: what is shown is one answer of the server, to the letter."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Visit, visiting
from tests.browser.driving import (
    PROMPT,
    REQUEST,
    SEED,
    another,
    answer_of,
    copied,
    finished,
    link_of,
    open_token,
    request_of,
    shown_texts,
    stop_after,
    tokens,
    write,
)
from tests.live import Live
from tests.slow_steps import slow_steps

pytestmark = pytest.mark.slow
LONG = 3000


def ids_of(live: Live, text: str) -> list[int]:
    ids: list[int] = httpx.post(f"{live.url}/tokenize", json={"text": text}).json()["token_ids"]
    return ids


def follow(page: Page, link: str) -> None:
    """A link that is opened in this very tab."""
    page.evaluate("(hash) => { location.hash = hash }", link[link.index("#") :])


def go_on_from_another(page: Page, index: int, versions: int = 2) -> None:
    open_token(page, index)
    another(page).click()
    expect(page.locator(".branch")).to_have_count(versions)


@pytest.fixture(scope="module")
def stopped(browser: Browser, live: Live) -> Iterator[Page]:
    """A page that was stopped while it wrote what goes on after the twelve tokens of a link."""
    given = answer_of(live, REQUEST | {"max_new_tokens": 12})["token_ids"]
    with visiting(browser, live.url) as visit:
        page = visit.open()
        stop_after(page, 20)
        with slow_steps(0.005):
            page.goto(link_of(page, REQUEST | {"seed": SEED, "max_new_tokens": LONG, "resume": {"token_ids": given}}))
            expect(page.locator("#status")).to_contain_text("Stopped after")
        yield page


@pytest.fixture(scope="module")
def desk(browser: Browser, live: Live) -> Iterator[Page]:
    """A page on which one text after another is written."""
    with visiting(browser, live.url) as visit:
        page = visit.open()
        page.locator("summary", has_text="Form").click()
        yield page


def write_on(
    desk: Page, *, seed: str = SEED, ends: bool = False, stop: str = "", bias: str = "", constraint: str = ""
) -> None:
    """With these settings, whatever the text before had."""
    desk.click("#tab-parameters")
    write(desk, seed=seed, ends=ends, stop=stop, logit_bias=bias, constraint=constraint)


@pytest.fixture(scope="module")
def open_tab(browser: Browser, live: Live) -> Iterator[Page]:
    """A tab in which links are followed that are refused, of which the browser itself makes a note."""
    with visiting(browser, live.url) as visit:
        visit.faults = Harmless()
        yield visit.open()


class Harmless(list[str]):
    """Faults but for the browser's note of an answer that is a refusal."""

    def append(self, fault: str) -> None:
        if "the server responded with a status of 4" not in fault:
            super().append(fault)


def test_what_a_link_goes_on_after_is_part_of_the_answer_that_is_stopped(stopped: Page, live: Live) -> None:
    request = request_of(stopped, copied(stopped, "link"))

    answer = answer_of(live, request)

    assert answer["text"] == "".join(shown_texts(stopped))
    assert len(answer["token_ids"]) == tokens(stopped).count()


def test_each_token_of_a_link_that_was_stopped_can_be_opened(stopped: Page, live: Live) -> None:
    ids = answer_of(live, REQUEST | {"max_new_tokens": 12})["token_ids"]

    open_token(stopped, 5)

    expect(stopped.locator(".token-head .note")).to_contain_text(f"id {ids[5]}")
    expect(stopped.locator(".said")).to_have_text("With these settings this token is taken.")


def test_an_older_text_is_gone_back_to_while_another_is_written(visit: Visit) -> None:
    page = visit.open()
    write(page, max_new_tokens="2000")
    before = shown_texts(page)
    go_on_from_another(page, 5)
    open_token(page, 3)
    page.evaluate(
        """new MutationObserver((_, observer) => {
          if (document.querySelectorAll("#text-0 > span").length < 10) return;
          observer.disconnect();
          document.querySelector(".branch").click();
        }).observe(document.getElementById("text-0"), { childList: true })"""
    )

    with slow_steps(0.005):
        another(page).click()
        expect(page.locator("#texts")).not_to_have_attribute("aria-busy", "true")

    expect(page.locator(".branch").first).to_have_attribute("aria-pressed", "true")
    page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    assert before == shown_texts(page)
    expect(page.locator(".branch")).to_have_count(2)
    expect(page.locator("#go")).to_have_text("Write")


def test_text_that_was_held_back_for_a_stop_stays_where_the_model_ends_it(desk: Page, live: Live) -> None:
    ends = {str(token_id): 4 for token_id in live.service.main.model.tokenizer.eos_token_ids}
    asked = REQUEST | {"seed": 1, "ignore_eos": False, "logit_bias": ends, "logprobs": {"top": 0}}
    answer = answer_of(live, asked)
    assert "eos" == answer["finish_reason"]
    write_on(desk, seed="1", ends=True, stop=answer["logprobs"][-2]["text"] + "Q", bias=json.dumps(ends))
    open_token(desk, 2)

    desk.locator(".matrix .chosen .candidate").click()

    expect(desk.locator(".branch")).to_have_count(2)
    expect(desk.locator("#status")).to_contain_text("the model ended it")
    assert answer["text"] == "".join(shown_texts(desk))


def test_tokens_that_come_together_are_told_apart(visit: Visit, live: Live) -> None:
    page = visit.open()
    write(page)
    page.route("**/generate", together)
    go_on_from_another(page, 6)

    answer = answer_of(live, request_of(page, copied(page, "link")) | {"logprobs": {"top": 0}})

    each = zip([token["text"] for token in answer["logprobs"]], tokens(page).all_text_contents(), strict=True)
    whole = [pair for pair in each if "\ufffd" not in "".join(pair)]
    assert 10 < len(whole)
    assert [text for text, _ in whole] == [shown for _, shown in whole]


def together(route: Route) -> None:
    """The events of a stream as a slow reader gets them: one for all tokens."""
    response = route.fetch()
    events = [json.loads(line[6:]) for line in response.text().splitlines() if line.startswith("data: {")]
    *deltas, whole = events
    one = deltas[-1] | {
        "text": "".join(delta["text"] for delta in deltas),
        "token_ids": [token_id for delta in deltas for token_id in delta["token_ids"]],
    }
    body = "".join(f"data: {json.dumps(event, separators=(',', ':'))}\n\n" for event in (one, whole))
    route.fulfill(response=response, body=body)


def test_a_stop_inside_of_a_token_cuts_it(desk: Page, live: Live) -> None:
    (often,) = ids_of(live, "es")

    write_on(desk, stop="s", bias=json.dumps({often: 100}))

    assert ["e"] == shown_texts(desk)


def test_what_a_stop_took_is_text_where_another_token_comes_instead(desk: Page, live: Live) -> None:
    texts = [token["text"] for token in answer_of(live, REQUEST | {"logprobs": {"top": 0}})["logprobs"]]
    last = next(
        place for place in range(4, 24) if all(text.isascii() and text for text in texts[place - 1 : place + 1])
    )
    write_on(desk, stop=texts[last - 1] + texts[last])
    expect(desk.locator("#status")).to_contain_text("a stop text was met")
    expect(desk.locator(".beyond")).to_have_count(2)

    go_on_from_another(desk, tokens(desk).count() - 1)

    expect(desk.locator(".beyond")).to_have_count(0)
    assert copied(desk, "text") == "".join(shown_texts(desk))


def test_a_byte_order_mark_is_text_like_any_other(desk: Page) -> None:
    marked = "\ufeffseed"

    write_on(desk, ends=True, constraint=json.dumps({"choice": [marked]}))

    assert marked == "".join(shown_texts(desk))


def test_a_character_that_stays_incomplete_is_shown_as_the_answer_has_it(desk: Page, live: Live) -> None:
    broken = ids_of(live, "種")[0]

    write_on(desk, bias=json.dumps({broken: 100}))

    assert "\ufffd" * 24 == copied(desk, "text") == "".join(shown_texts(desk))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": 5}, "messages are no list of roles and texts"),
        ({"num_return": 10**9}, "num_return is none of 1 to 16"),
        ({"seed": "no"}, "seed is none"),
        ({"resume": {"token_ids": [40_000, 5]}}, "token_ids.0"),
        ({"stop": "abc"}, "stop must be"),
    ],
)
def test_a_link_that_cannot_be_opened_says_so_in_an_open_tab(
    open_tab: Page, fields: dict[str, Any], message: str
) -> None:
    follow(open_tab, link_of(open_tab, {"prompt": PROMPT, "seed": SEED, "max_new_tokens": 9} | fields))

    expect(open_tab.locator("#problem")).to_contain_text(message)
    expect(open_tab.locator("#stop")).to_be_hidden()


def test_a_link_that_was_overtaken_changes_nothing(visit: Visit, live: Live) -> None:
    page = visit.open()
    given = answer_of(live, REQUEST | {"max_new_tokens": 12})["token_ids"]
    link = link_of(page, REQUEST | {"seed": SEED, "resume": {"token_ids": given}})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/detokenize", hold)
    with page.expect_request("**/detokenize"):
        follow(page, link)

    write(page, "Another prompt")
    before = shown_texts(page)
    with page.expect_response("**/detokenize"):
        held[0].continue_()

    page.evaluate("new Promise((resolve) => setTimeout(resolve, 50))")
    assert before == shown_texts(page)
    finished(page)
