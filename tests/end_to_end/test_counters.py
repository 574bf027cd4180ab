"""What callers are told and what operators see are one count."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.settings import Settings
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

TEXT = "The seed lies in the ground and waits for the rain. "
CHAT = [{"role": "user", "content": TEXT}]
Body = dict[str, Any]
STREAMED: Body = {"stream": True}
WITH_USAGE: Body = {"stream": True, "stream_options": {"include_usage": True}}
ASKED: list[tuple[str, Body]] = [
    ("/generate", {"prompt": TEXT, "max_new_tokens": 9}),
    ("/generate", {"prompt": TEXT, "max_new_tokens": 30, "num_return": 3, **STREAMED}),
    ("/generate", {"prompt": TEXT * 3, "max_new_tokens": 8, "session_id": "s"}),
    ("/generate", {"prompt": TEXT * 3 + "When", "max_new_tokens": 8, "session_id": "s", **STREAMED}),
    ("/generate", {"prompt": TEXT, "beam_width": 4, "num_return": 2, "max_new_tokens": 7}),
    ("/generate", {"prompt": TEXT, "max_new_tokens": 20, "logprobs": {"prompt": True}}),
    ("/generate", {"prompt": TEXT, "max_new_tokens": 40, "stop": ["e", "a"]}),
    ("/generate", {"prompt": TEXT, "max_new_tokens": 12, "use_cache": False}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 11}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 11, "n": 2, **WITH_USAGE}),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 13, "n": 2}),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 13, **WITH_USAGE}),
]
REFUSED: list[tuple[str, Body]] = [
    ("/generate", {"prompt": TEXT, "temperature": "hot"}),
    ("/v1/completions", {"prompt": TEXT, "n": 99}),
    ("/v1/chat/completions", {"messages": []}),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=1024))


@pytest.fixture(scope="module")
def live(path: Path) -> Iterator[Live]:
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server


def usage_in(response: httpx.Response) -> dict[str, int]:
    """Prompt, generated and cached tokens as the caller is told them, in the names of `/generate`."""
    if response.headers["content-type"].startswith("application/json"):
        usage = response.json()["usage"]
    else:
        events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        (usage,) = [told for event in events[:-1] if (told := json.loads(event).get("usage"))]
    return {
        "prompt": usage["prompt_tokens"],
        "generated": usage.get("generated_tokens", usage.get("completion_tokens")),
        "cached": usage.get("cached_tokens", usage.get("prompt_tokens_details", {}).get("cached_tokens")),
    }


@pytest.fixture(scope="module")
def load(live: Live) -> tuple[list[dict[str, int]], dict[str, float]]:
    """Every question once, in turn with those that are refused; what was told, and how far the counters grew."""
    before = live.samples()
    with live.client() as client:
        told = []
        for seed, (route, body) in enumerate(ASKED):
            response = client.post(route, json={**body, "seed": seed})
            assert 200 == response.status_code, response.text
            told.append(usage_in(response))
        for route, body in REFUSED:
            assert client.post(route, json=body).status_code in (400, 422)
    live.wait_until_idle()
    after = live.samples()
    return told, {name: value - before.get(name, 0) for name, value in after.items()}


@pytest.mark.parametrize(
    ("counter", "field"),
    [
        ("tane_prompt_tokens_total", "prompt"),
        ("tane_generated_tokens_total", "generated"),
        ("tane_prefix_cache_hit_tokens_total", "cached"),
    ],
)
def test_a_counter_grows_by_what_callers_are_told(
    counter: str, field: str, load: tuple[list[dict[str, int]], dict[str, float]]
) -> None:
    told, grown = load

    assert 0 < sum(usage[field] for usage in told) == grown[counter]


def test_every_answered_request_has_one_outcome_and_one_of_each_time(
    load: tuple[list[dict[str, int]], dict[str, float]],
) -> None:
    _, grown = load

    assert len(ASKED) == sum(count for name, count in grown.items() if name.startswith("tane_requests_total"))
    for name in ("tane_request_seconds", "tane_time_to_first_token_seconds", "tane_queue_seconds"):
        assert len(ASKED) == grown[f"{name}_count"], name


def test_the_cache_is_never_hit_by_more_than_was_asked_of_it(
    load: tuple[list[dict[str, int]], dict[str, float]],
) -> None:
    _, grown = load

    assert 0 < grown["tane_prefix_cache_hit_tokens_total"] < grown["tane_prefix_cache_queried_tokens_total"]


def test_the_memory_of_the_cache_is_all_told_and_none_is_leased_at_rest(
    load: tuple[list[dict[str, int]], dict[str, float]], live: Live
) -> None:
    samples = live.samples()
    states = {state: samples[f"tane_kv_cache_bytes {state}"] for state in ("leased", "idle", "free")}

    assert live.service.main.engine_info.kv_cache_bytes == sum(states.values())
    assert 0 == states["leased"] < states["idle"]


def test_scrapes_see_the_same_whoever_else_scrapes(live: Live) -> None:
    """All but the count of the scrapes themselves, and what time changes: the rate for people, and the memory held."""
    live.wait_until_idle()

    def steady() -> dict[str, float]:
        passing = ("tane_http_requests_total /metrics", "tane_tokens_per_second", "tane_memory_bytes")
        return {name: value for name, value in live.samples().items() if not name.startswith(passing)}

    assert steady() == steady() == steady()


def test_every_line_of_the_metrics_is_read_by_the_official_parser(live: Live) -> None:
    response = httpx.get(f"{live.url}/metrics")
    families = list(text_string_to_metric_families(response.text))

    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    assert len(lines) == sum(len(family.samples) for family in families)
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation and family.type != "unknown" for family in families)


def answered(live: Live, route: str, count: int) -> dict[str, float]:
    """Answers of the route by status, once so many are counted: that is just after a caller has the last byte."""
    prefix = f"tane_http_requests_total {route} "
    for _ in range(3000):
        found = {name.removeprefix(prefix): n for name, n in live.samples().items() if name.startswith(prefix)}
        if sum(found.values()) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(found)


def test_a_full_queue_refuses_before_any_stream_and_counts_it(path: Path) -> None:
    async def flood(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = {"prompt": TEXT, "max_new_tokens": 100, "ignore_eos": True, "speculation": "off", "stream": True}
            return await asyncio.gather(*(client.post("/generate", json=body) for _ in range(12)))

    settings = {"model": str(path), "kv_cache_bytes": 4 << 20, "max_queue_tokens": 500}
    with slow_steps(0.004), live_server(Settings.load({}, settings)) as small:
        answers = asyncio.run(flood(small.url))
        counted = answered(small, "/generate", 12)

    refused = [answer for answer in answers if answer.status_code == 503]
    assert 0 < len(refused) == counted["503"]
    assert {"overloaded"} == {answer.json()["error"]["code"] for answer in refused}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert 12 - len(refused) == counted["200"]
