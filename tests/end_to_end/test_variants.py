"""A server of several models: each answers as it does alone, to the last bit, whatever the others do."""

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from service.replay import record_of
from service.runtime import Runtime, Stop
from service.settings import Settings
from tests.compressed import grids_for, tiny_source, write_artefact
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(width=64, feed_forward=128, context=2048)
OTHER = TinyShape(layers=1, vocabulary=352, context=2048)
"""Which knows more tokens than the main model."""
TEXT = "The seed lies in the ground and waits for the rain. "
QUESTIONS: Mapping[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "logprobs": {"top": 3, "prompt": True}},
    "drawn": {"temperature": 1.2, "seed": 7, "top_p": 0.95, "logprobs": {"top": 2, "of": "sampled"}},
    "of several texts": {"temperature": 0.9, "seed": 3, "num_return": 3, "logprobs": {}},
    "searched": {"beam_width": 3, "num_return": 2},
    "constrained": {"temperature": 0.8, "seed": 5, "constraint": {"regex": "[a-z]{3,20}"}},
}
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    source = tiny_source(folder, shape=SHAPE)
    small = write_artefact(folder / "small", source, grids_for(source, bits=4, group=64))
    other = write_tiny_gguf(folder / "other.gguf", shape=OTHER, format="Q8_0", seed=3)
    return {"tiny": folder / "source.gguf", "small": small, "other": other}


def settings(main: Path, *variants: str, **given: Any) -> Settings:
    flags = {"model": str(main), "variant": variants, "kv_cache_bytes": 4 << 20, "threads": 2}
    return Settings.load({}, flags | given)


def all_of(paths: Mapping[str, Path], **given: Any) -> Settings:
    return settings(paths["tiny"], f"small={paths['small']}", f"other={paths['other']}", **given)


@pytest.fixture(scope="module")
def live(paths: Mapping[str, Path]) -> Iterator[Live]:
    with live_server(all_of(paths, draft="small", draft_cache_bytes=4 << 20)) as server:
        yield server


@pytest.fixture(scope="module")
def alone(paths: Mapping[str, Path]) -> Mapping[tuple[str, str], Any]:
    """For each model and question the bits of a server that serves this model and nothing else."""
    answers: dict[tuple[str, str], Any] = {}
    for name, path in paths.items():
        with live_server(settings(path)) as server:
            answers |= {(name, question): bits_of(generate(server, **question_of(question))) for question in QUESTIONS}
    return answers


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def question_of(question: str) -> dict[str, Any]:
    return {"prompt": TEXT, "max_new_tokens": 10, **QUESTIONS[question]}


def generate(live: Live, **fields: Any) -> Answer:
    response = httpx.post(f"{live.url}/generate", json=fields, timeout=60)
    assert response.status_code == 200, response.text
    answer: Answer = response.json()
    return answer


def bits_of(answer: Answer) -> Any:
    """All that an answer says of its texts, and its fingerprint."""
    names = ("text", "token_ids", "finish_reason", "logprobs", "logprob", "score")
    texts = [{name: choice.get(name) for name in names} for choice in answer.get("choices", [answer])]
    return json.dumps([texts, answer["prompt_logprobs"], answer["reproducibility"]["fingerprint"]])


def has_made_more(tokens: float, samples: Mapping[str, float]) -> bool:
    return samples["tane_generated_tokens_total"] > tokens


@contextmanager
def busy(live: Live, *models: str) -> Iterator[None]:
    """Requests one after another on each of these models until the block ends; all have begun with theirs."""
    over = threading.Event()
    before = {model: live.samples(model)["tane_generated_tokens_total"] for model in models}

    def ask(model: str) -> None:
        for seed in itertools.count():
            generate(live, model=model, prompt=TEXT, max_new_tokens=30, num_return=2, seed=seed, use_cache=False)
            if over.is_set():
                return

    threads = [threading.Thread(target=ask, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    try:
        for model, made in before.items():
            live.wait_until(partial(has_made_more, made), model)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=60)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["tiny", "small", "other"])
def test_a_model_answers_as_it_does_alone(
    live: Live, alone: Mapping[tuple[str, str], Any], name: str, question: str
) -> None:
    assert alone[name, question] == bits_of(generate(live, model=name, **question_of(question)))


@pytest.mark.parametrize("name", ["tiny", "small", "other"])
def test_a_model_answers_as_it_does_alone_while_the_others_are_busy(
    live: Live, alone: Mapping[tuple[str, str], Any], name: str
) -> None:
    with busy(live, *(model for model in ("tiny", "small", "other") if model != name)):
        answers = {question: bits_of(generate(live, model=name, **question_of(question))) for question in QUESTIONS}

    assert {question: alone[name, question] for question in QUESTIONS} == answers


def test_the_models_answer_differently(alone: Mapping[tuple[str, str], Any]) -> None:
    assert 3 * len(QUESTIONS) == len(set(alone.values()))


def test_tokens_are_counted_for_the_model_that_made_them(live: Live) -> None:
    live.wait_until_idle()
    before = {name: live.samples(name) for name in ("tiny", "small", "other")}

    answer = generate(live, model="small", prompt=TEXT, max_new_tokens=9, ignore_eos=True)

    grown = {
        name: live.samples(name)["tane_generated_tokens_total"] - samples["tane_generated_tokens_total"]
        for name, samples in before.items()
    }
    assert {"tiny": 0, "small": answer["usage"]["generated_tokens"], "other": 0} == grown


def test_memory_is_counted_for_each_cache(live: Live) -> None:
    def cache(name: str) -> float:
        samples = live.samples(name)
        return sum(samples[f"tane_kv_cache_bytes {state}"] for state in ("leased", "idle", "free"))

    assert {name: served.engine_info.kv_cache_bytes for name, served in live.service.models.items()} == {
        name: cache(name) for name in live.service.models
    }


def sessions_of(live: Live, model: str) -> list[dict[str, Any]]:
    sessions: list[dict[str, Any]] = httpx.get(f"{live.url}/sessions", params={"model": model}).json()["sessions"]
    return sessions


def test_a_session_is_one_models(live: Live) -> None:
    def names(model: str) -> list[str]:
        return [session["id"] for session in sessions_of(live, model)]

    for model in ("tiny", "small"):
        generate(live, model=model, prompt=TEXT, max_new_tokens=2, session_id="shared")
    deleted = httpx.delete(f"{live.url}/sessions/shared?model=small")

    assert (204, True, False, False) == (
        deleted.status_code,
        "shared" in names("tiny"),
        "shared" in names("small"),
        "shared" in names("other"),
    )


def test_what_one_model_has_cached_is_nothing_to_another(live: Live) -> None:
    prompt = {"prompt_tokens": [random.Random(1).randrange(3, 259) for _ in range(70)], "max_new_tokens": 1}
    generate(live, **prompt)

    first, again = (generate(live, model="small", **prompt)["cache"]["reused_tokens"] for _ in range(2))

    assert (0, 69) == (first, again)


@pytest.mark.parametrize("name", ["tiny", "small", "other"])
def test_a_record_of_each_model_holds(live: Live, name: str) -> None:
    request = {"model": name, **question_of("drawn")}

    result = httpx.post(f"{live.url}/replay", json=record_of(request, generate(live, **request)), timeout=60).json()

    assert (True, name) == (result["equal"], result["answer"]["model"])


def test_a_record_shows_where_another_model_parts_from_it(live: Live) -> None:
    record = record_of(question_of("greedy"), generate(live, **question_of("greedy")))

    result = httpx.post(f"{live.url}/replay", json={**record, "model": "small"}, timeout=60).json()

    assert (False, ["other_model", "other_fingerprint"]) == (result["equal"], result["reasons"][:2])


def test_a_variant_guesses_for_the_main_model(live: Live) -> None:
    answer = generate(live, prompt=TEXT, temperature=0, max_new_tokens=40, ignore_eos=True, speculation="draft")

    assert 0 < answer["speculation"]["drafted_tokens"]


def test_a_variant_has_no_draft_model(live: Live) -> None:
    body = {"prompt": TEXT, "speculation": "draft", "model": "small"}

    assert 422 == httpx.post(f"{live.url}/generate", json=body).status_code


def test_openais_client_sees_every_model(client: openai.OpenAI) -> None:
    assert ["tiny", "small", "other"] == [model.id for model in client.models.list()]


def test_openais_client_reads_what_a_model_is(client: openai.OpenAI) -> None:
    model: Any = client.models.retrieve("small")

    assert ("small", "random-codes", True) == (model.id, model.recipe, 4 < model.bits_per_weight < 8.5)


@pytest.mark.parametrize("name", ["tiny", "small", "other"])
def test_openais_client_chooses_a_model(live: Live, client: openai.OpenAI, name: str) -> None:
    messages: Any = [{"role": "user", "content": "Name a fruit."}]
    fields: Any = {"temperature": 1.5, "seed": 7}
    expected = generate(live, model=name, messages=messages, max_new_tokens=12, **fields)["text"]

    whole = client.chat.completions.create(model=name, messages=messages, max_tokens=12, **fields)
    with client.chat.completions.create(model=name, messages=messages, max_tokens=12, stream=True, **fields) as stream:
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]

    assert (name, expected, expected) == (whole.model, whole.choices[0].message.content, "".join(pieces))


def test_openais_client_is_told_what_is_served(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-4", prompt=TEXT)

    body: Any = caught.value.body
    assert ("model_not_found", ["tiny", "small", "other"]) == (caught.value.code, body["allowed"])


def test_models_that_nobody_asks_sleep(live: Live) -> None:
    """Their pools spin for microseconds after a step and wait for the next one asleep."""
    for name in live.service.models:
        generate(live, model=name, prompt=TEXT, max_new_tokens=2)
    live.wait_until_idle()

    began, used = time.monotonic(), time.process_time()
    time.sleep(0.3)

    assert time.process_time() - used < 0.3 * (time.monotonic() - began)


def test_an_engine_that_ended_takes_the_server_out_and_the_others_answer(paths: Mapping[str, Path]) -> None:
    with live_server(settings(paths["tiny"], f"small={paths['small']}")) as live:
        runtime = live.service.models["small"].runtime
        assert isinstance(runtime, Runtime)
        ready = httpx.get(f"{live.url}/readyz").status_code
        runtime._inbox.put(Stop())
        while runtime.is_live:
            time.sleep(0.005)
        health = [httpx.get(f"{live.url}{path}").json()["error"]["code"] for path in ("/livez", "/readyz")]
        statuses = [
            httpx.post(f"{live.url}/generate", json={"prompt": TEXT, "max_new_tokens": 2, "model": name}).status_code
            for name in ("tiny", "small")
        ]

    assert (200, ["not_live", "not_ready"], [200, 503]) == (ready, health, statuses)


def test_every_engine_ends_with_the_server(paths: Mapping[str, Path]) -> None:
    before = threading.active_count()
    with live_server(all_of(paths)) as live:
        runtimes = [served.runtime for served in live.service.models.values()]
        assert all(runtime.is_live for runtime in runtimes)

    deadline = time.monotonic() + 30
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [False] * 3 == [runtime.is_live for runtime in runtimes]
    assert before >= threading.active_count() - 1


@pytest.mark.slow
def test_sessions_of_every_model_expire(paths: Mapping[str, Path]) -> None:
    with live_server(all_of(paths, session_ttl_s=0.2)) as live:
        for name in live.service.models:
            generate(live, model=name, prompt=TEXT, max_new_tokens=2, session_id="s")
        deadline = time.monotonic() + 30
        while any(left := [sessions_of(live, name) for name in live.service.models]) and time.monotonic() < deadline:
            time.sleep(0.1)

    assert [[], [], []] == left
