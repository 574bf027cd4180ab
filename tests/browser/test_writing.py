"""Writing on the page: what is sent, what is shown, and what another person sees who is given the link."""

import ast
import json
import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit
from tests.browser.driving import (
    PROMPT,
    REQUEST,
    SEED,
    answer_of,
    copied,
    finished,
    open_token,
    shown_texts,
    stop_after,
    tokens,
    write,
)
from tests.live import Live
from tests.slow_steps import slow_steps

pytestmark = pytest.mark.slow


def test_the_text_is_the_servers(written: Page, live: Live) -> None:
    assert answer_of(live, REQUEST)["text"] == "".join(shown_texts(written))
    assert REQUEST["max_new_tokens"] == tokens(written).count()


def test_a_seed_is_shown_digit_for_digit(written: Page) -> None:
    expect(written.locator("#status")).to_contain_text(f"seed {SEED}")


def test_every_field_of_the_document_has_a_control_with_its_meaning(written: Page, live: Live) -> None:
    document = httpx.get(f"{live.url}/openapi.json").json()
    schema = document["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    elsewhere = {"prompt", "prompt_tokens", "messages", "stream", "logprobs", "explain", "resume", "seed"}
    of_beams = {"beam_width", "length_penalty"}

    for name in schema["properties"].keys() - elsewhere - of_beams:
        meaning = schema["properties"][name]["description"].replace("`", "")
        assert meaning == written.locator(f"#field-{name}-note").text_content()


def test_a_value_out_of_range_is_said_beside_its_field(visit: Visit) -> None:
    page = visit.open()
    page.fill("#prompt", PROMPT)
    page.fill("#field-temperature", "3")

    page.click("#go")

    expect(page.locator("#field-temperature-problem")).to_have_text("must be a number, 0 to 2")
    expect(page.locator("#field-temperature")).to_be_focused()


def test_the_link_brings_the_text_in_another_browser(written: Page, browser: Browser) -> None:
    link = copied(written, "link")

    with browser.new_context() as elsewhere:
        other = elsewhere.new_page()
        other.goto(link)
        finished(other)

        assert shown_texts(written) == shown_texts(other)
        assert (PROMPT, SEED) == (other.input_value("#prompt"), other.input_value("#field-seed"))


def test_a_link_touches_nobodys_session(written: Page) -> None:
    told = written.evaluate(
        "import('/ui/js/link.js').then(({ linkOf, readLink }) => readLink(new URL(linkOf("
        "{ prompt: 'a', seed: '1', session_id: 'mine' }, 'f')).hash))"
    )

    assert {"request": {"prompt": "a", "seed": "1"}, "fingerprint": "f"} == told


def test_the_link_of_a_drawn_seed_holds_it(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    write(page, seed="")
    link = copied(page, "link")

    with browser.new_context() as elsewhere:
        other = elsewhere.new_page()
        other.goto(link)
        finished(other)

        assert shown_texts(page) == shown_texts(other)


def test_the_link_of_a_changed_text_brings_it_too(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    write(page)
    open_token(page, 4)
    page.locator(".matrix tr:not(.chosen) .candidate").first.click()
    expect(page.locator(".branch")).to_have_count(2)
    link = copied(page, "link")

    with browser.new_context() as elsewhere:
        other = elsewhere.new_page()
        other.goto(link)
        finished(other)

        assert "".join(shown_texts(page)) == "".join(shown_texts(other))


def test_the_request_as_code_holds_the_very_request(visit: Visit) -> None:
    prompt = 'It\'s "so" — $HOME'
    page = visit.open()
    write(page, prompt)

    page.click("[data-copy=curl]")
    curl = found(r"-d '(.*)'\n", page).replace("'\\''", "'")
    page.click("[data-copy=javascript]")
    javascript = json.loads(found(r'body: (".*"),', page))

    assert [REQUEST | {"prompt": prompt}] * 2 == [json.loads(curl), json.loads(javascript)]


def found(pattern: str, page: Page) -> str:
    match = re.search(pattern, page.locator("#snippet").text_content() or "")
    assert match is not None
    return match[1]


def test_the_request_as_python_gives_the_text(written: Page, capsys: pytest.CaptureFixture[str]) -> None:
    written.click("[data-copy=python]")

    exec(written.locator("#snippet").text_content() or "", {})

    assert "".join(shown_texts(written)) + "\n" == capsys.readouterr().out


def test_python_code_of_a_form_that_has_a_seed_runs(written: Page) -> None:
    request = {"prompt": "a", "seed": "7", "constraint": {"json_schema": {"properties": {"seed": {"const": True}}}}}
    code = written.evaluate(
        "(request) => import('/ui/js/link.js').then(({ python }) => python(request, false))", request
    )

    call = next(node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.keyword) and node.arg == "json")
    assert request | {"seed": 7} == ast.literal_eval(call.value)


def test_a_copy_button_has_its_name_again_after_two_clicks(visit: Visit) -> None:
    page = visit.open()
    write(page, max_new_tokens="2")
    button = page.locator("[data-copy=link]")
    page.clock.install()
    for _ in range(2):
        button.click()
        expect(button).to_have_text("Copied")
        page.clock.run_for(400)

    page.clock.run_for(1200)

    expect(button).to_have_text("Copy link")


def test_markup_in_prompt_and_output_stays_text(visit: Visit) -> None:
    markup = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    page = visit.open()

    page.locator("summary", has_text="Form").click()
    write(page, markup, ends=True, max_new_tokens="120", constraint=json.dumps({"choice": [markup]}))

    assert markup == "".join(shown_texts(page))[: len(markup)]
    assert page.evaluate("window.hit === undefined && document.querySelectorAll('img[src=x]').length === 0")


def test_stop_cancels_the_request_and_what_has_come_is_a_whole_answer(
    visit: Visit, live: Live, browser: Browser
) -> None:
    page = visit.open()
    page.fill("#prompt", PROMPT)
    page.fill("#field-max_new_tokens", "4000")
    page.select_option("#field-ignore_eos", "true")
    stop_after(page, 20)

    cancelled = live.samples()["tane_requests_total cancelled"]
    with slow_steps(0.02):
        page.click("#go")
        live.wait_until(lambda samples: samples["tane_requests_total cancelled"] > cancelled)

    expect(page.locator("#status")).to_contain_text("Stopped after")
    assert 20 < tokens(page).count() < 4000
    open_token(page, 3)
    link = copied(page, "link")
    with browser.new_context() as elsewhere:
        other = elsewhere.new_page()
        other.goto(link)
        finished(other)
        assert shown_texts(page) == shown_texts(other)


def test_two_thousand_tokens_stay_smooth(visit: Visit) -> None:
    """No task of the page holds a frame up for long while they come, nor when one of them is opened.

    In one of some visits, since others may have the machine meanwhile.
    """
    assert any(longest_task_ms(visit.open()) < 400 for _ in range(5))


def longest_task_ms(page: Page) -> float:
    page.evaluate(
        "window.longest = 0; new PerformanceObserver((list) => { for (const task of list.getEntries()) "
        "window.longest = Math.max(window.longest, task.duration) }).observe({ type: 'longtask' })"
    )
    write(page, max_new_tokens="2000")
    tokens(page).nth(1000).click(position={"x": 1, "y": 1}, force=True)
    expect(tokens(page)).to_have_count(2000)
    longest: float = page.evaluate("window.longest")
    return longest


def test_a_conversation_is_sent_as_messages(visit: Visit) -> None:
    page = visit.open()
    page.locator("label", has_text="Conversation").click()
    page.fill(".turns textarea", "Name a fruit.")
    page.fill("#field-max_new_tokens", "8")

    with page.expect_request("**/generate") as sent:
        page.click("#go")

    assert [{"role": "user", "content": "Name a fruit."}] == json.loads(sent.value.post_data or "")["messages"]
    finished(page)
