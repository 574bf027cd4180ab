"""Whoever comes, with whatever they have: axe finds no serious fault, narrow windows need no scrolling aside."""

import json
from importlib.resources import files

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Visit
from tests.browser.driving import open_token, write

pytestmark = pytest.mark.slow
AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = ("serious", "critical")
FIRST_PAINT = """new Promise((resolve) => new PerformanceObserver((list) => {
  for (const paint of list.getEntriesByName("first-contentful-paint")) resolve(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
OTHERS = ("beams", "sessions", "compression", "numbers")


def faults(page: Page) -> list[str]:
    """What axe-core finds that keeps someone out, with where."""
    page.evaluate(AXE)
    found = json.loads(page.evaluate("axe.run().then((result) => JSON.stringify(result.violations))"))
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes']]}" for each in found if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_a_text_and_a_token(visit: Visit, scheme: str) -> None:
    visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = visit.open()
    assert [] == faults(page)
    write(page)
    open_token(page, 5)
    page.click("[data-copy=curl]")

    assert [] == faults(page)


def test_axe_finds_no_serious_fault_in_the_other_views(visit: Visit) -> None:
    visit.page.emulate_media(reduced_motion="reduce")
    page = visit.open("/#beams")
    page.click("#view-beams button")
    page.locator(".trellis").wait_for()
    found = {}
    for name in OTHERS:
        page.locator(f"#views a[href='#{name}']").click()
        page.locator(f"#view-{name} > :nth-child(3)").wait_for()
        found[name] = faults(page)

    assert {name: [] for name in OTHERS} == found


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_nothing_is_wider_than_the_window(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 800})
    page = visit.open()
    write(page, "An unbreakable" + "word" * 60)
    open_token(page, 5)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_paint_comes_soon(visit: Visit) -> None:
    """In one of many visits, since others may have the machine meanwhile."""
    paints = (visit.open().evaluate(FIRST_PAINT) for _ in range(40))

    assert any(paint < 500 for paint in paints)
