"""The whole server over a tiny random model: sockets, door, engine thread, torch."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.request import Delta, Failed, Finished, Usage
from service.settings import Settings
from service.ticket import Ticket
from tests.live import Live, live_server
from tests.slow_steps import slow_steps
from tests.tiny_model import TinyShape, write_tiny_gguf

TEXT = "The seed lies in the ground and waits for the rain. "
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=2048))
    with live_server(settings_for(path)) as server:
        yield server


def settings_for(path: Path, **given: Any) -> Settings:
    return Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20, **given})


def generate(live: Live, **fields: Any) -> Answer:
    response = httpx.post(f"{live.url}/generate", json=fields, timeout=60)
    assert response.status_code == 200, response.text
    answer: Answer = response.json()
    return answer


def ids(live: Live, count: int, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 259) for _ in range(count)]


def test_a_stream_says_what_the_whole_answer_says(live: Live) -> None:
    fields = {"prompt": TEXT, "max_new_tokens": 40, "temperature": 1.0, "seed": 7, "use_cache": False}
    whole = generate(live, **fields)
    with live.client() as client, client.stream("POST", "/generate", json={**fields, "stream": True}) as response:
        events = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]

    deltas, terminal = [json.loads(event) for event in events[:-2]], json.loads(events[-2])

    assert events[-1] == "[DONE]"
    assert "".join(delta["text"] for delta in deltas) == terminal["text"] == whole["text"]
    assert terminal["token_ids"] == whole["token_ids"]


def test_the_same_seed_gives_the_same_text_and_another_seed_another(live: Live) -> None:
    fields = {"prompt": TEXT, "max_new_tokens": 30, "temperature": 1.5}

    first, again, other = (generate(live, **fields, seed=seed)["token_ids"] for seed in (3, 3, 4))

    assert first == again != other


def test_a_session_edited_at_token_400_of_600_computes_the_last_200(live: Live) -> None:
    """And the step-row metric agrees, and the text is that of a run without the cache."""
    prompt = ids(live, 600)
    generate(live, prompt_tokens=prompt, max_new_tokens=4, session_id="edited", temperature=0)
    edited = [*prompt[:400], (prompt[400] + 1) % 256 + 3, *prompt[401:]]
    before = live.samples()["tane_engine_rows_total prefill"]

    answer = generate(live, prompt_tokens=edited, max_new_tokens=24, session_id="edited", temperature=0)
    rows = live.samples()["tane_engine_rows_total prefill"] - before
    fresh = generate(live, prompt_tokens=edited, max_new_tokens=24, use_cache=False, temperature=0)

    assert (answer["cache"]["reused_tokens"], answer["cache"]["computed_tokens"], rows) == (400, 200, 200)
    assert answer["token_ids"] == fresh["token_ids"]


@pytest.mark.parametrize("appended", [1, 5, 33])
def test_appending_k_ids_to_prompt_and_answer_computes_k_plus_1(live: Live, appended: int) -> None:
    session, prompt = f"append-{appended}", ids(live, 77, seed=1000 + appended)  # nobody else holds a page of it
    first = generate(live, prompt_tokens=prompt, max_new_tokens=20, ignore_eos=True, session_id=session)

    history = [*prompt, *first["token_ids"], *ids(live, appended, seed=2)]
    answer = generate(live, prompt_tokens=history, max_new_tokens=1, session_id=session)

    assert answer["cache"]["computed_tokens"] == appended + 1


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65])
def test_prompts_that_share_a_prefix_answer_as_they_do_alone(live: Live, length: int) -> None:
    """Canaries after a shared prefix, all at once, each in its own session, against runs without the cache."""
    prefix = ids(live, length, seed=length)
    prompts = [[*prefix, canary, *ids(live, canary % 5, seed=canary)] for canary in range(100, 106)]

    async def together() -> list[Answer]:
        async with httpx.AsyncClient(base_url=live.url, timeout=60) as client:
            posts = [client.post("/generate", json=body(p, session_id=f"c{length}-{i}")) for i, p in enumerate(prompts)]
            return [response.json() for response in await asyncio.gather(*posts)]

    def body(prompt: list[int], **fields: Any) -> Answer:
        return {"prompt_tokens": prompt, "max_new_tokens": 12, "temperature": 0, **fields}

    warm = asyncio.run(together())
    cold = [generate(live, **body(prompt, use_cache=False)) for prompt in prompts]

    assert [answer["token_ids"] for answer in warm] == [answer["token_ids"] for answer in cold]


def test_a_fork_shares_pages(live: Live) -> None:
    prompt = ids(live, 200, seed=9)
    generate(live, prompt_tokens=prompt, max_new_tokens=4, session_id="trunk")
    idle = live.samples()["tane_kv_cache_bytes idle"]

    with live.client() as client:
        forked = client.post("/sessions/trunk/fork", json={"session_id": "branch"})
        taken = client.post("/sessions/trunk/fork", json={"session_id": "branch"})
    answer = generate(live, prompt_tokens=prompt, max_new_tokens=1, session_id="branch")

    assert (forked.status_code, taken.status_code) == (201, 409)
    assert live.samples()["tane_kv_cache_bytes idle"] <= idle
    assert answer["cache"]["reused_tokens"] == 199


def test_a_client_that_goes_away_frees_its_pages(live: Live) -> None:
    cancelled = live.samples()["tane_requests_total cancelled"]
    with slow_steps(0.002), live.client() as client:
        with client.stream(
            "POST", "/generate", json={"prompt": TEXT, "max_new_tokens": 1500, "stream": True}
        ) as stream:
            next(stream.iter_lines())
        live.wait_until(lambda samples: samples["tane_requests_total cancelled"] > cancelled)

        assert live.samples()["tane_kv_cache_bytes leased"] == 0
        assert client.get("/readyz").status_code == 200


async def one_of_a_mixed_load(client: httpx.AsyncClient, number: int) -> None:
    draw = random.Random(number)
    fields: Answer = {
        "prompt": TEXT * draw.randint(1, 8),
        "max_new_tokens": draw.randint(1, 60),
        "num_return": draw.choice((1, 1, 3)),
        "seed": number,
    }
    kind = number % 5
    if kind == 0:
        await client.post("/generate", json={**fields, "session_id": f"mixed{number % 3}"})
    elif kind == 1:
        async with client.stream("POST", "/generate", json={**fields, "max_new_tokens": 900, "stream": True}) as stream:
            async for _ in stream.aiter_lines():
                break
    elif kind == 2:
        await client.post("/generate", json={**fields, "deadline_ms": draw.choice((1, 30))})
    elif kind == 3:
        await client.post("/generate", json={**fields, "temperature": "hot"})
    else:
        await client.post("/v1/completions", json={"prompt": TEXT, "max_tokens": 20, "seed": number})


def test_the_books_balance_over_a_mixed_load(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage over all terminal events, cancelled ones included, equals the counters; no page stays leased."""
    usages: list[Usage] = []
    put = Ticket.put

    def watched(ticket: Ticket, event: Delta | Finished | Failed) -> None:
        if not isinstance(event, Delta):
            usages.append(event.usage)
        put(ticket, event)

    async def load() -> None:
        async with httpx.AsyncClient(base_url=live.url, timeout=60) as client:
            await asyncio.gather(*(one_of_a_mixed_load(client, number) for number in range(60)))

    live.wait_until_idle()
    before = live.samples()
    monkeypatch.setattr(Ticket, "put", watched)
    asyncio.run(load())
    live.wait_until_idle()
    after = live.samples()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert len(usages) >= 30
    assert grown("tane_prompt_tokens_total") == sum(usage.prompt_tokens for usage in usages)
    assert grown("tane_generated_tokens_total") == sum(usage.generated_tokens for usage in usages)
    assert after["tane_kv_cache_bytes leased"] == 0
    assert sum(after[f"tane_kv_cache_bytes {state}"] for state in ("free", "idle", "leased")) == (
        live.service.main.engine_info.kv_cache_bytes
    )
    assert grown("tane_requests_total engine_failed") == 0


def test_a_full_queue_is_503_with_a_time_to_return(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(context=2048))

    async def flood(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = {"prompt": TEXT, "max_new_tokens": 100, "ignore_eos": True, "speculation": "off"}
            return await asyncio.gather(*(client.post("/generate", json=body) for _ in range(12)))

    with slow_steps(0.004), live_server(settings_for(path, max_queue_tokens=500)) as small:
        answers = asyncio.run(flood(small.url))

    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status_code == 503)
