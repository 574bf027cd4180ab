"""Keys on a real server: who is let in, whose cache it is, and what a key may use."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import httpx
import pytest

from service.client import TaneClient, TaneError
from service.constraints import ConstraintCache
from service.keys import KeysError
from service.settings import Settings
from service.startup import build_service
from tests.hostile.wire import connected, post, talk
from tests.live import Live, live_server
from tests.tiny_model import write_tiny_gguf

ALICE, BOB = "alice-key", "bob-key"
BOUND_BYTES = 1 << 20
"""What may arrive at once."""
PROMPT = list(range(3, 60))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("keys")
    model = write_tiny_gguf(folder / "tiny.gguf", format="Q4_1")
    keys = folder / "keys"
    keys.write_text(f"# ours\n{ALICE}\n\n{BOB}\n", encoding="utf-8")
    settings = {"model": model, "kv_cache_bytes": 1 << 20, "keys_file": keys, "key_tokens_per_minute": 600}
    settings |= {"max_body_bytes": BOUND_BYTES // 16}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.arriving.MAX_BYTES", BOUND_BYTES)
        with live_server(Settings.load({}, {name: str(value) for name, value in settings.items()})) as running:
            yield running


def test_keys_keep_apart_what_they_send(live: Live) -> None:
    with TaneClient(live.url, api_key=ALICE) as alice, TaneClient(live.url, api_key=BOB) as bob:
        answers = [
            client.generate(prompt_tokens=PROMPT, max_new_tokens=4, seed=1, session_id="s")
            for client in (alice, bob, alice, bob)
        ]
        alice.delete_session("s")
        sessions = [[each.id for each in client.sessions()] for client in (alice, bob)]

    assert [0, 0, 56, 56] == [answer.cache.reused_tokens for answer in answers]
    assert 1 == len({answer.text for answer in answers})
    assert [[], ["s"]] == sessions


@pytest.mark.parametrize("route", ["/generate", "/estimate", "/v1/completions"])
def test_what_one_key_had_compiled_is_compiled_anew_for_another(route: str, live: Live) -> None:
    name = live.service.main.model.name
    body = {"prompt": "x", "max_tokens" if "v1" in route else "max_new_tokens": 24, "model": name}
    for key in (ALICE, BOB):
        headers = {"authorization": f"Bearer {key}"}
        answer = httpx.post(f"{live.url}{route}", json=body | {"constraint": {"regex": f"{route}a+"}}, headers=headers)
        assert answer.status_code == 200, answer.text

    cache = cast(ConstraintCache, live.service.main.model.constraints)
    ids = {hashlib.sha256(key.encode()).hexdigest()[:12] for key in (ALICE, BOB)}
    assert ids == {key_id for spec, _, key_id in cache._entries if spec.source == f"{route}a+"}


def test_half_sent_bodies_of_one_key_shut_out_no_other(live: Live) -> None:
    """As many as fill what one may begin, of a size just below the largest."""
    size = live.service.settings.max_body_bytes
    beginning = post("/generate", b" " * (size - 1), authorization=f"Bearer {ALICE}", content_length=str(size))
    with ExitStack() as open_ones:
        for _ in range(BOUND_BYTES // size):
            open_ones.enter_context(connected(live.url)).sendall(beginning)
        refused = talk(live.url, beginning)
        with TaneClient(live.url, api_key=BOB) as bob:
            answer = bob.generate(prompt_tokens=PROMPT, max_new_tokens=4)

    assert (503, "overloaded") == (refused.status, refused.code)
    assert 4 == answer.usage.generated_tokens


def test_without_a_key_nothing_is_generated(live: Live) -> None:
    with TaneClient(live.url) as stranger, pytest.raises(TaneError) as refused:
        stranger.generate(prompt_tokens=PROMPT, max_new_tokens=4)

    assert (401, "invalid_api_key") == (refused.value.status, refused.value.code)


def test_a_key_that_used_its_minute_waits_and_another_does_not(live: Live) -> None:
    body = {"prompt_tokens": PROMPT, "max_new_tokens": 60, "ignore_eos": True}
    headers = {"authorization": f"Bearer {ALICE}"}
    answers = [httpx.post(f"{live.url}/generate", json=body, headers=headers) for _ in range(6)]
    with TaneClient(live.url, api_key=BOB) as bob:
        bob.generate(prompt_tokens=PROMPT, max_new_tokens=4)

    assert {200, 429} == {answer.status_code for answer in answers}
    assert 429 == answers[-1].status_code
    assert 1 <= int(answers[-1].headers["retry-after"]) < 60
    assert "tokens_per_minute_exceeded" == answers[-1].json()["error"]["code"]


def test_the_file_of_keys_is_judged_before_the_model_is_looked_for(tmp_path: Path) -> None:
    settings = Settings(model=str(tmp_path / "nowhere.gguf"), keys_file=str(tmp_path / "nowhere"))

    with pytest.raises(KeysError):
        build_service(settings)


@pytest.mark.slow
def test_a_key_is_taken_away_and_another_added_while_the_server_runs(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", format="Q4_1")
    file = tmp_path / "keys"
    file.write_text(f"{ALICE}\n{BOB}\n", encoding="utf-8")
    settings = Settings.load({}, {"model": str(model), "kv_cache_bytes": 1 << 20, "keys_file": str(file)})
    with live_server(settings) as live:
        with TaneClient(live.url, api_key=ALICE) as alice:
            alice.generate(prompt_tokens=PROMPT, max_new_tokens=4, session_id="s")
        before = idle_bytes(live, ALICE)
        file.write_text("carol-key\n", encoding="utf-8")
        deadline = time.monotonic() + 30
        while status(live, ALICE) != 401 and time.monotonic() < deadline:
            time.sleep(0.05)
        while idle_bytes(live, "carol-key") > 0 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert [401, 401, 200] == [status(live, key) for key in (ALICE, BOB, "carol-key")]
        assert before > 0 == idle_bytes(live, "carol-key")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def status(live: Live, key: str) -> int:
    return httpx.get(f"{live.url}/info", headers=bearer(key)).status_code


def idle_bytes(live: Live, key: str) -> float:
    """What the cache keeps for nobody who runs."""
    text = httpx.get(f"{live.url}/metrics", headers=bearer(key)).text
    (line,) = [line for line in text.splitlines() if line.startswith("tane_kv_cache_bytes{") and 'state="idle"' in line]
    return float(line.rpartition(" ")[2])
