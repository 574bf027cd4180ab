"""Inside a token: what the page computes is what the server explains, and another token can take its place."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Visit, visiting
from tests.browser.driving import REQUEST, SEED, another, open_token, shown_texts, tokens, write
from tests.live import Live

pytestmark = pytest.mark.slow


def explained(live: Live, index: int, text: int = 0, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(f"{live.url}/generate", json=REQUEST | {"explain": True} | fields, timeout=30).json()
    told: dict[str, Any] = answer.get("choices", [answer])[text]["explain"][index]
    return told


def percent(probability: float) -> str:
    if probability >= 0.9995:
        return "100 %"
    return "< 0.1 %" if probability < 0.0005 else f"{100 * probability:.1f} %"


def column(page: Page, number: int) -> dict[int, str]:
    """What stands beside each candidate in one column, by its id."""
    rows = page.locator(".matrix tbody tr").all()
    return {id_of(row): row.locator("td").nth(number).locator(".value").inner_text() for row in rows}


def id_of(row: Locator) -> int:
    return int(row.get_attribute("data-id") or "")


def probabilities(stage: dict[str, Any]) -> dict[int, str]:
    """Of the tokens that a stage of the server's lists, as the page writes them."""
    return {entry["token_id"]: percent(entry["probability"]) for entry in stage["top"]}


def chosen(page: Page) -> int:
    return id_of(page.locator(".matrix .chosen"))


@pytest.mark.parametrize("index", [0, 7])
def test_the_bars_are_the_servers_explanation(written: Page, live: Live, index: int) -> None:
    open_token(written, index)

    told = explained(live, index)
    assert len(told["stages"]) == written.locator(".matrix thead th").count() - 1
    for number, stage in enumerate(told["stages"]):
        assert probabilities(stage).items() <= column(written, number).items()


@pytest.mark.parametrize(
    "changes", [{}, {"temperature": "0"}, {"logit_bias": '{"70": 2.5, "71": -1}', "banned_token_ids": "101, 32"}]
)
def test_the_page_says_that_it_is_equal_to_the_server(visit: Visit, changes: dict[str, str]) -> None:
    page = visit.open()
    page.locator("summary", has_text="Form").click()
    write(page, **changes)  # type: ignore[arg-type]
    open_token(page, 9)

    page.click(".check button")

    expect(page.locator(".check p")).to_contain_text("Equal to the server's, stage by stage")


def test_the_number_and_where_it_fell_are_the_servers(written: Page, live: Live) -> None:
    open_token(written, 7)

    told = explained(live, 7)
    expect(written.locator(".needle")).to_have_text(f"u = {told['uniform']:.4f}")
    assert told["token_id"] == chosen(written)


def test_sliders_ask_the_server_nothing_and_show_what_it_would_say(written: Page, live: Live) -> None:
    open_token(written, 0)
    asked: list[str] = []
    written.on("request", lambda request: asked.append(request.url))

    written.fill("#knob-temperature", "0.5")
    written.fill("#knob-top_k", "3")

    told = explained(live, 0, temperature=0.5, top_k=3)
    expect(written.locator(".said")).to_contain_text("With these settings")
    (top_k,) = [number for number, stage in enumerate(told["stages"]) if stage["name"] == "top_k"]
    shown = column(written, top_k)
    assert probabilities(told["stages"][top_k]).items() <= shown.items()
    assert told["token_id"] == chosen(written)
    assert [] == asked


def test_another_token_is_gone_on_from_in_the_session(visit: Visit, live: Live) -> None:
    page = visit.open()
    write(page)
    before = shown_texts(page)
    open_token(page, 6)

    another(page).click()

    expect(page.locator(".branch")).to_have_count(2)
    after = shown_texts(page)
    assert before[:6] == after[:6]
    assert before != after
    expect(page.locator("#cache")).to_contain_text("The session's text was changed")
    kept = httpx.post(f"{live.url}/estimate", json=REQUEST).json()["prompt_tokens"] + 6
    expect(page.locator(".count.reused")).to_have_text(f"{kept} kept")
    expect(page.locator(".count.computed")).to_have_text("1 computed")


def test_the_text_goes_on_as_the_server_would_go_on(visit: Visit, live: Live) -> None:
    page = visit.open()
    write(page)
    ids = httpx.post(f"{live.url}/generate", json=REQUEST).json()["token_ids"][:6]
    open_token(page, 6)
    token_id = id_of(page.locator(".matrix tr[data-id]:not(.chosen)").first)

    another(page).click()
    expect(page.locator(".branch")).to_have_count(2)

    expected = httpx.post(f"{live.url}/generate", json=REQUEST | {"resume": {"token_ids": [*ids, token_id]}}).json()
    assert expected["text"] == "".join(shown_texts(page))
    expect(page.locator("#status")).to_contain_text(f"seed {SEED}")


def test_one_goes_back_to_the_text_as_it_was(visit: Visit) -> None:
    page = visit.open()
    write(page)
    before = shown_texts(page)
    open_token(page, 3)
    another(page).click()
    expect(page.locator(".branch")).to_have_count(2)

    page.locator(".branch").first.click()

    assert before == shown_texts(page)


def test_what_the_page_cannot_follow_is_the_servers_own(visit: Visit, live: Live) -> None:
    page = visit.open()
    page.locator("summary", has_text="Repetition").click()
    write(page, repetition_penalty="1.5")

    open_token(page, 8)

    told = explained(live, 8, repetition_penalty=1.5)
    assert "penalties" in [stage["name"] for stage in told["stages"]]
    assert probabilities(told["stages"][-1]).items() <= column(page, len(told["stages"]) - 1).items()
    expect(page.locator(".knobs")).to_have_count(0)


FORM = {"json_schema": {"type": "object", "properties": {"seed": {"type": "integer"}}, "required": ["seed"]}}


def assert_shows(page: Page, told: dict[str, Any]) -> None:
    """Every stage that the server told of, with the probabilities of the last."""
    assert len(told["stages"]) == page.locator(".matrix thead th").count() - 1
    assert probabilities(told["stages"][-1]).items() <= column(page, len(told["stages"]) - 1).items()


@pytest.fixture(scope="module")
def formed(browser: Browser, live: Live) -> Iterator[Page]:
    with visiting(browser, live.url) as visit:
        page = visit.open()
        page.locator("summary", has_text="Form").click()
        write(page, ends=True, constraint=json.dumps(FORM))
        yield page


@pytest.mark.parametrize("index", [0, 3, -1])
def test_each_token_of_a_form_can_be_opened(formed: Page, live: Live, index: int) -> None:
    place = index % tokens(formed).count()

    open_token(formed, place)

    assert_shows(formed, explained(live, place, constraint=FORM, ignore_eos=False))


@pytest.fixture(scope="module")
def several(browser: Browser, live: Live) -> Iterator[Page]:
    with visiting(browser, live.url) as visit:
        page = visit.open()
        for group in ("Serving", "Repetition"):
            page.locator("summary", has_text=group).click()
        write(page, num_return="2")
        yield page


def test_a_token_of_a_second_text_is_its_own(several: Page, live: Live) -> None:
    open_token(several, 6)
    open_token(several, 6, text=1)

    told = explained(live, 6, num_return=2, text=1)
    assert probabilities(told["stages"][0]).items() <= column(several, 0).items()
    assert told["token_id"] == chosen(several)


def test_a_token_of_a_second_text_is_checked_against_the_server(several: Page) -> None:
    open_token(several, 4, text=1)

    several.click(".check button")

    expect(several.locator(".check p")).to_contain_text("Equal to the server's, stage by stage")


@pytest.mark.parametrize("name", ["repetition_penalty", "min_new_tokens"])
def test_what_the_page_cannot_follow_in_a_second_text_is_the_servers_own(several: Page, live: Live, name: str) -> None:
    several.click("#tab-parameters")
    changes = {"repetition_penalty": "", "min_new_tokens": "", name: "12" if name == "min_new_tokens" else "1.5"}
    write(several, num_return="2", **changes)  # type: ignore[arg-type]

    open_token(several, 7, text=1)

    assert_shows(several, explained(live, 7, num_return=2, text=1, **{name: json.loads(changes[name])}))


def test_escape_leads_back_to_the_text(written: Page) -> None:
    open_token(written, 1)
    written.keyboard.press("Tab")

    written.keyboard.press("Escape")

    expect(written.locator("#text-0")).to_be_focused()
    expect(written.locator("#panel-token")).to_be_hidden()


def test_what_has_the_focus_keeps_it_when_the_curve_comes(visit: Visit) -> None:
    page = visit.open()
    write(page)
    page.evaluate("() => { window.held = []; window.setTimeout = (call) => held.push(call) }")
    open_token(page, 2)

    page.locator(".candidate").first.focus()
    page.evaluate(
        "async () => { while (!document.querySelector('.curve circle'))"
        " { for (const call of held.splice(0)) call(); await new Promise(requestAnimationFrame) } }"
    )

    expect(page.locator(".candidate").first).to_be_focused()


def test_the_keyboard_alone_opens_and_replaces_a_token(visit: Visit) -> None:
    page = visit.open()
    write(page)
    open_token(page, 2)
    while "candidate" not in (page.evaluate("document.activeElement.className") or ""):
        page.keyboard.press("Tab")

    page.keyboard.press("Enter")

    expect(page.locator(".branch")).to_have_count(2)
    assert 2 < tokens(page).count()
