"""Beams, sessions, compression and numbers, each beside what the server says itself."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from service.settings import Settings
from tests.browser.conftest import Visit, visiting
from tests.browser.driving import write
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

pytestmark = pytest.mark.slow
SEARCH: dict[str, Any] = {"prompt": "The capital of France is", "beam_width": 3, "num_return": 3, "max_new_tokens": 6}


def viewed(visit: Visit, name: str) -> Page:
    visit.open(f"/#{name}")
    expect(visit.page.locator(f"#view-{name}")).to_be_visible()
    return visit.page


def percent(probability: float) -> str:
    if probability >= 0.9995:
        return "100 %"
    return "< 0.1 %" if probability < 0.0005 else f"{100 * probability:.1f} %"


@pytest.fixture(scope="module")
def searched(browser: Browser, live: Live) -> Iterator[Page]:
    """A page on which a search was made and has grown to its end."""
    with visiting(browser, live.url) as visit:
        visit.page.emulate_media(reduced_motion="reduce")
        page = viewed(visit, "beams")
        page.fill("#beam-beam_width", "3")
        page.fill("#beam-max_new_tokens", "6")
        page.click("#view-beams button")
        expect(page.locator("#view-beams output")).to_have_text("6 of 6")
        yield page


def test_the_tree_has_the_servers_beams_with_their_probabilities(searched: Page, live: Live) -> None:
    answer = httpx.post(f"{live.url}/generate", json=SEARCH | {"explain": True}).json()
    expected, before = [], [{"logprob": 0.0}]
    for step in answer["beams"]:
        expected += [percent(math.exp(beam["logprob"] - before[beam["parent"]]["logprob"])) for beam in step]
        before = step

    assert expected == searched.locator(".trellis .node .share").all_text_contents()


def test_the_winner_is_marked(searched: Page, live: Live) -> None:
    answer = httpx.post(f"{live.url}/generate", json=SEARCH).json()["choices"][0]

    expect(searched.locator(".trellis .node.won")).to_have_count(len(answer["token_ids"]))
    expect(searched.locator("tr.won .words")).to_have_text(answer["text"], use_inner_text=True)


def test_greedys_path_stands_beside_it(searched: Page, live: Live) -> None:
    body = {"prompt": SEARCH["prompt"], "max_new_tokens": 6, "temperature": 0, "logprobs": {}}
    entries = httpx.post(f"{live.url}/generate", json=body).json()["logprobs"]

    shown = searched.locator(".trellis .greedy .share").all_text_contents()
    assert [percent(math.exp(entry["logprob"])) for entry in entries] == shown


def test_the_search_is_shown_as_it_stood(searched: Page, live: Live) -> None:
    first, second, *_ = httpx.post(f"{live.url}/generate", json=SEARCH | {"explain": True}).json()["beams"]

    searched.fill("#beam-step", "2")

    expect(searched.locator(".trellis .node:visible")).to_have_count(len(first) + len(second))
    parents = {beam["parent"] for beam in second if beam["ending"] is None}
    gone = [place for place, beam in enumerate(first) if beam["ending"] is None and place not in parents]
    expect(searched.locator(".trellis .node.gone:visible")).to_have_count(len(gone))
    searched.fill("#beam-step", "6")


def test_sessions_are_listed_forked_and_forgotten(visit: Visit, live: Live) -> None:
    httpx.post(f"{live.url}/generate", json={"prompt": "a tale", "max_new_tokens": 4, "session_id": "tale"})
    page = viewed(visit, "sessions")
    row = page.locator("tr", has=page.get_by_text("tale", exact=True))
    told = httpx.get(f"{live.url}/sessions/tale").json()
    expect(row.locator("td").first).to_have_text(str(told["tokens"]))
    edits = live.samples()["tane_kv_cache_evicted_tokens_total edit"]
    expect(page.locator("#view-sessions .note").last).to_contain_text(f"{edits:,.0f} by edits")

    page.get_by_label("Name of a fork of tale").fill("other-end")
    page.keyboard.press("Enter")

    expect(page.locator(".twig", has_text="other-end")).to_be_visible()
    assert "tale" == httpx.get(f"{live.url}/sessions/other-end").json()["parent"]
    page.get_by_label("Forget other-end").click()
    expect(page.locator(".twig", has_text="other-end")).to_have_count(0)
    assert 404 == httpx.get(f"{live.url}/sessions/other-end").status_code
    httpx.delete(f"{live.url}/sessions/tale")


def test_what_an_edit_let_go_of_stands_beside_its_session(visit: Visit, live: Live) -> None:
    def let_go() -> float:
        return live.samples()["tane_kv_cache_evicted_tokens_total edit"]

    prompt = "A long tale of a lantern that went out. " * 8
    page = visit.open()
    write(page, prompt, max_new_tokens="2")
    row = page.locator("#view-sessions tr", has_text="no edit in 1 turn")
    page.click("#views a[href='#sessions']")
    expect(row).to_have_count(1)
    before = let_go()

    page.click("#views a[href='#write']")
    write(page, prompt[:100], max_new_tokens="2")
    page.click("#views a[href='#sessions']")

    expect(page.locator("#view-sessions .edits", has_text="by 1 edit in 2 turns")).to_be_visible()
    evicted = let_go() - before
    assert evicted > 0
    edit = page.locator("#view-sessions .edits", has_text=f"{evicted:.0f} tokens by 1 edit in 2 turns")
    expect(edit).to_contain_text(f"{evicted:.0f} let go")


def test_a_name_that_is_typed_stays_whatever_the_server_says_meanwhile(visit: Visit, live: Live) -> None:
    httpx.post(f"{live.url}/generate", json={"prompt": "a tale", "max_new_tokens": 4, "session_id": "tale"})
    page = viewed(visit, "sessions")
    name = page.get_by_label("Name of a fork of tale")
    name.wait_for()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/sessions?*", hold)
    with page.expect_request("**/sessions?*"):
        pass

    name.fill("other-end")
    with page.expect_response("**/metrics") as answer:
        held[0].continue_()
    answer.value.finished()
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")

    expect(name).to_have_value("other-end")
    httpx.delete(f"{live.url}/sessions/tale")


def test_numbers_are_those_of_the_metrics(visit: Visit, live: Live) -> None:
    page = viewed(visit, "numbers")
    live.wait_until_idle()

    written = live.samples()["tane_generated_tokens_total"]
    expect(page.locator(".card", has_text="Answered")).to_contain_text(f"{written:,.0f} tokens were written")


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("models")
    first = write_tiny_gguf(folder / "first.gguf", shape=TinyShape(context=512), format="Q8_0")
    second = write_tiny_gguf(folder / "second.gguf", shape=TinyShape(context=512), format="Q4_1", seed=1)
    given = {"model": str(first), "variant": [f"small={second}"], "kv_cache_bytes": 4 << 20}
    with live_server(Settings.load({}, given)) as server:
        yield server


def test_two_models_answer_side_by_side_with_the_first_difference_marked(browser: Browser, two_models: Live) -> None:
    with visiting(browser, two_models.url) as visit:
        page = viewed(visit, "compression")
        expect(page.locator("#view-compression tbody th")).to_have_count(2)
        names = page.locator("#view-compression tbody th").all_text_contents()

        page.click("#view-compression button[type=submit]")

        expect(page.locator(".pair article")).to_have_count(2)
        body = {"prompt": page.input_value("#variant-prompt"), "temperature": 0, "max_new_tokens": 64}
        texts = [httpx.post(f"{two_models.url}/generate", json=body | {"model": name}).json()["text"] for name in names]
        assert texts == page.locator(".pair p.prose").all_text_contents()
        expect(page.locator(".pair mark")).to_have_count(2)


@pytest.fixture(scope="module")
def evaluated(browser: Browser, live: Live) -> Iterator[Page]:
    """With figures as `tane eval --save` keeps them, which a folder of compressed weights would have."""
    told = httpx.get(f"{live.url}/info").json()
    (model,) = told["models"]
    figures = {
        "large": (400_000_000, 10.0, 30.0),
        "middle": (200_000_000, 10.1, 70.0),
        "small": (100_000_000, 20.0, 60),
    }
    told["models"] = [
        model | {"name": name, "bytes": size, "evaluation": {"perplexity": perplexity, "tokens_per_second": speed}}
        for name, (size, perplexity, speed) in figures.items()
    ]
    with visiting(browser, live.url) as visit:
        visit.page.route("**/info", lambda route: route.fulfill(json=told))
        page = viewed(visit, "compression")
        page.locator(".frontier svg").first.wait_for()
        yield page


@pytest.mark.parametrize(("plot", "names"), [(0, ["small", "middle", "large"]), (1, ["large", "small", "middle"])])
def test_models_that_were_evaluated_stand_by_size_and_by_speed_and_by_perplexity(
    evaluated: Page, plot: int, names: list[str]
) -> None:
    drawn = evaluated.locator(".frontier svg").nth(plot)

    points = [
        [float(each.get_attribute(axis) or "") for axis in ("cx", "cy")] for each in drawn.locator("circle").all()
    ]
    placed = dict(zip(("large", "middle", "small"), points, strict=True))
    assert names == sorted(placed, key=lambda name: placed[name][0])
    assert ["large", "middle", "small"] == sorted(placed, key=lambda name: -placed[name][1])


def test_a_point_has_its_name_beside_it_and_the_axes_have_their_ends(evaluated: Page) -> None:
    drawn = evaluated.locator(".frontier svg").nth(1)

    assert ["large", "middle", "small"] == sorted(drawn.locator(".name").all_text_contents())
    assert ["10", "20", "30", "70"] == drawn.locator(".tick").all_text_contents()
    assert "small: 60, 20" in (drawn.get_attribute("aria-label") or "")


@pytest.mark.parametrize("width", [360, 1280])
def test_names_of_points_that_lie_close_do_not_cover_each_other(evaluated: Page, width: int) -> None:
    evaluated.set_viewport_size({"width": width, "height": 900})

    boxes = evaluated.evaluate(
        "[...document.querySelectorAll('.frontier svg')].map((plot) => [...plot.querySelectorAll('text')]"
        ".map((text) => text.getBoundingClientRect().toJSON()))"
    )

    for plot in boxes:
        assert [] == [(a, b) for a, b in itertools.combinations(plot, 2) if overlap(a, b)]


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    """Whether two boxes share more than a line's leading."""
    across = min(a["right"], b["right"]) - max(a["left"], b["left"])
    down = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
    return across > 1 and down > 4


def test_the_study_prunes_as_its_definitions_say(visit: Visit) -> None:
    """Against numpy, on the page's own artificial row."""
    page = viewed(visit, "compression")
    made = page.evaluate(
        "import('/ui/js/pruning.js').then(({ trial, byMagnitude, bySaliency, bySurgery, deviation }) => {"
        " const row = trial(4, 0.7); return { weights: [...row.weights], inputs: row.inputs.map((each) => [...each]),"
        " moved: [byMagnitude, bySaliency, bySurgery].map((way) => deviation(row, way(row, 24))) } })"
    )

    expected = [deviation(made, pruned) for pruned in pruned_rows(made, 24)]
    np.testing.assert_allclose(made["moved"], expected, rtol=1e-6)


def pruned_rows(made: dict[str, Any], count: int) -> list[Any]:
    """By magnitude, by saliency alone, and by taking at each turn the least saliency and solving for the rest."""
    weights, inputs = np.array(made["weights"]), np.array(made["inputs"])
    hessian = 2 * inputs.T @ inputs / len(inputs)
    hessian += 0.01 * np.diag(hessian).mean() * np.eye(len(weights))
    magnitude, saliency = weights.copy(), weights.copy()
    magnitude[np.argsort(np.abs(weights))[:count]] = 0
    saliency[np.argsort(weights**2 / np.diag(np.linalg.inv(hessian)))[:count]] = 0
    surgery, left = weights.copy(), list(range(len(weights)))
    for _ in range(count):
        prices = surgery[left] ** 2 / np.diag(np.linalg.inv(hessian[np.ix_(left, left)]))
        left.pop(int(np.argmin(prices)))
        gone = [index for index in range(len(weights)) if index not in left]
        surgery = np.zeros_like(weights)
        moved = np.linalg.solve(hessian[np.ix_(left, left)], hessian[np.ix_(left, gone)] @ weights[gone])
        surgery[left] = weights[left] + moved
    return [magnitude, saliency, surgery]


def deviation(made: dict[str, Any], pruned: Any) -> float:
    weights, inputs = np.array(made["weights"]), np.array(made["inputs"])
    return float(np.linalg.norm(inputs @ (pruned - weights)) / np.linalg.norm(inputs @ weights))
