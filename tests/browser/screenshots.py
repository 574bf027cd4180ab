"""The pictures of docs/page.md, of the default model: python -m tests.browser.screenshots FOLDER"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from model.loading.hub import pull
from service.settings import Settings
from tests.browser.conftest import ARGUMENTS, BROWSERS
from tests.browser.driving import finished, open_token
from tests.live import live_server

PROMPT = "The old lighthouse keeper opened the door and saw"
PARAMETERS = {"seed": "7", "max_new_tokens": "72", "temperature": "0.9", "top_k": "40", "top_p": "0.9"}
TOKEN = 12
WIDE, NARROW, HUGE = (1280, 900), (360, 760), (3840, 2160)


def write(page: Page, address: str) -> None:
    page.goto(address)
    page.locator(".group").first.wait_for()
    page.fill("#prompt", PROMPT)
    for name, value in PARAMETERS.items():
        page.fill(f"#field-{name}", value)
    page.click("#go")
    finished(page)


def take(page: Page, address: str, folder: Path) -> None:
    """Every picture, with this page's window as it needs it."""
    page.emulate_media(reduced_motion="reduce")
    for name, (width, height) in {"token": WIDE, "narrow": NARROW, "huge": HUGE}.items():
        page.set_viewport_size({"width": width, "height": height})
        write(page, address)
        open_token(page, TOKEN)
        page.locator(".curve circle").wait_for()
        page.evaluate("document.getElementById('side').scrollTo(0, 0); scrollTo(0, innerWidth < 500 ? 330 : 0)")
        page.screenshot(path=folder / f"page-{name}.png")
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    page.goto(f"{address}/#beams")
    page.click("#view-beams button")
    page.locator(".trellis .node.won").first.wait_for()
    page.screenshot(path=folder / "page-beams.png")


def main(folder: Path) -> None:
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with live_server(Settings.load({}, {"model": str(pull())})) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        take(browser.new_page(), server.url, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
