"""What a person does on the page, as functions."""

from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.live import Live

PROMPT = "The seed decides"
SEED = "9223372036854775807"
PARAMETERS = {"max_new_tokens": "24", "temperature": "1.7", "top_k": "40", "top_p": "0.98", "min_p": "0.01"}
NUMBERS = {name: float(value) if "." in value else int(value) for name, value in PARAMETERS.items()}
REQUEST: dict[str, Any] = {"prompt": PROMPT, "seed": int(SEED), "ignore_eos": True, **NUMBERS}
"""What `write` asks for, as the server is sent it."""


def write(page: Page, prompt: str = PROMPT, *, seed: str = SEED, ends: bool = False, **parameters: str) -> None:
    """Fill in the form, send it and wait for the end."""
    page.fill("#prompt", prompt)
    page.fill("#field-seed", seed)
    for name, value in (PARAMETERS | parameters).items():
        page.fill(f"#field-{name}", value)
    page.select_option("#field-ignore_eos", "false" if ends else "true")
    page.click("#go")
    finished(page)


def finished(page: Page) -> None:
    expect(page.locator("#take")).to_be_visible()


def stop_after(page: Page, count: int) -> None:
    """Press stop once more tokens than these are there, with a hand that is quicker than a small model."""
    page.evaluate(
        """(count) => new MutationObserver(() => {
          if (document.querySelectorAll("#text-0 > span").length > count) document.getElementById("stop").click();
        }).observe(document.getElementById("texts"), { childList: true, subtree: true })""",
        count,
    )


def tokens(page: Page) -> Locator:
    return page.locator("#text-0 > span")


def open_token(page: Page, index: int, text: int = 0) -> None:
    """Look inside a token, by the keyboard: some are of no width."""
    page.locator(f"#text-{text}").focus()
    page.keyboard.press("Home")
    for _ in range(index):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".token-head .note")).to_contain_text(f"token {index + 1} of")
    page.locator(".matrix").wait_for()


def copied(page: Page, kind: str) -> str:
    """What the clipboard holds once the page says that this was copied."""
    button = page.locator(f"[data-copy={kind}]")
    expect(button).not_to_have_text("Copied")
    button.click()
    expect(button).to_have_text("Copied")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def shown_texts(page: Page) -> list[str]:
    """What stands in the page for each token that is part of the text."""
    return page.locator("#text-0 > span:not(.beyond)").all_text_contents()


def another(page: Page) -> Locator:
    """The likeliest candidate of the open token that was not taken."""
    return page.locator(".matrix tr[data-id]:not(.chosen) .candidate").first


def link_of(page: Page, request: dict[str, Any]) -> str:
    """The page's own link to a request."""
    link: str = page.evaluate("(request) => import('/ui/js/link.js').then((link) => link.linkOf(request, ''))", request)
    return link


def request_of(page: Page, link: str) -> dict[str, Any]:
    """The request that a link holds, as the server is sent it."""
    hash_ = link[link.index("#") :]
    held: dict[str, Any] = page.evaluate(
        "(hash) => import('/ui/js/link.js').then((link) => link.readLink(hash).request)", hash_
    )
    return held | {"seed": int(held["seed"])}


def answer_of(live: Live, request: dict[str, Any]) -> dict[str, Any]:
    """What the server answers to a request, without the page."""
    answer: dict[str, Any] = httpx.post(f"{live.url}/generate", json=request, timeout=30).json()
    return answer
