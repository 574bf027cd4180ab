"""The load client against a scripted server: what it sends, what it measures, which failures it tells apart."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from service.app import create_app
from service.cli.load import LoadReport, run_load
from service.cli.load_client import LoadError, connected
from service.cli.load_plan import Load, LoadPlan, Question, Target
from service.cli.load_prompts import Length, arrivals
from service.cli.load_report import StreamRecord
from tests.fake_runtime import make_service
from tests.service.cli.completions_fake import DONE, PLAIN, CompletionsFake, CurrentFake, chunk, turn
from tests.serving import serving

MODELS = {"/v1/models": {"data": [{"id": "tiny"}]}}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[CurrentFake, str]]:
    current = CurrentFake()
    with serving(current) as url:
        yield current, url


@pytest.fixture
def server(running: tuple[CurrentFake, str]) -> CompletionsFake:
    running[0].fake = CompletionsFake(paths=dict(MODELS))
    return running[0].fake


@pytest.fixture
def url(running: tuple[CurrentFake, str], server: CompletionsFake) -> str:
    return running[1]


PLAN = LoadPlan(
    loads=(Load("concurrency", 1),),
    requests=1,
    prompt_tokens=Length(4, 4),
    output_tokens=Length(3, 3),
    seed=1,
    warmup=0,
    timeout_s=60.0,
)


def streams(*counts: int) -> tuple[Load, ...]:
    return tuple(Load("concurrency", count) for count in counts)


def run(url: str, plan: LoadPlan = PLAN, model: str | None = None) -> LoadReport:
    (report,) = asyncio.run(run_load([Target(url, model)], plan, lambda: None))
    return report


def errors_of(url: str, plan: LoadPlan = PLAN) -> dict[str, int]:
    return dict(run(url, plan).levels[0].errors)


def test_a_stream_is_asked_for_with_usage_and_without_eos(server: CompletionsFake, url: str) -> None:
    run(url)

    (body,) = server.bodies
    del body["prompt"]
    assert {
        "model": "tiny",
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    } == body


def test_eos_can_be_left_alone(server: CompletionsFake, url: str) -> None:
    run(url, replace(PLAN, ignore_eos=False))

    assert "ignore_eos" not in server.bodies[0]


def test_the_model_named_is_the_model_asked_for(server: CompletionsFake, url: str) -> None:
    run(url, model="other")

    assert "other" == server.bodies[0]["model"]


def test_llama_cpp_is_told_to_use_no_cache(server: CompletionsFake, url: str) -> None:
    server.paths["/props"] = {}

    assert "llama.cpp" == run(url).server
    assert False is server.bodies[0]["cache_prompt"]


def test_vllm_is_told_to_generate_no_fewer_tokens(server: CompletionsFake, url: str) -> None:
    server.paths["/version"] = {}

    assert "vllm" == run(url).server
    assert 3 == server.bodies[0]["min_tokens"]


def test_tane_is_known_by_its_info(server: CompletionsFake, url: str) -> None:
    server.paths["/info"] = {"name": "tane"}

    assert "tane" == run(url).server


def test_another_server_may_have_an_info_of_its_own(server: CompletionsFake, url: str) -> None:
    server.paths["/info"] = ["tane"]

    assert "other" == run(url).server


def test_tane_itself_takes_what_is_sent() -> None:
    with serving(create_app(make_service())) as url:
        report = run(url)

    assert ("tane", "tiny", {}) == (report.server, report.model, report.levels[0].errors)
    assert ("usage", 7) == (report.levels[0].counted, report.levels[0].generated_tokens)


def test_tokens_are_counted_from_usage(server: CompletionsFake, url: str) -> None:
    level = run(url).levels[0]

    assert ("usage", 3, 7) == (level.counted, level.generated_tokens, level.prompt_tokens)


def test_tokens_are_counted_from_chunks_without_usage(server: CompletionsFake, url: str) -> None:
    server.stream = (chunk("a"), chunk("b"), chunk(""), DONE)

    level = run(url).levels[0]

    assert ("chunks", 2, None) == (level.counted, level.generated_tokens, level.prompt_tokens)


def test_no_two_requests_share_a_prompt(server: CompletionsFake, url: str) -> None:
    run(url, replace(PLAN, loads=streams(1, 2, 2), requests=4, warmup=2, prompt_tokens=Length(20, 20), rounds=2))

    assert 26 == len({body["prompt"] for body in server.bodies})


def test_a_seed_fixes_the_prompts(server: CompletionsFake, url: str) -> None:
    run(url)
    run(url)

    assert server.bodies[0] == server.bodies[1]


def test_as_many_streams_run_at_once_as_were_asked_for(server: CompletionsFake, url: str) -> None:
    server.waits_for = 3

    run(url, replace(PLAN, loads=streams(3), requests=9))

    assert 3 == server.most_running


def test_every_request_has_a_connection_of_its_own(server: CompletionsFake, url: str) -> None:
    run(url, replace(PLAN, requests=3))

    assert 3 == len(set(server.ports))


def test_every_request_is_made(server: CompletionsFake, url: str) -> None:
    report = run(url, replace(PLAN, loads=streams(1, 2), requests=5, warmup=2))

    assert [5, 5] == [level.requests for level in report.levels]
    assert 12 == len(server.bodies)


def test_progress_is_told_once_for_each_request(server: CompletionsFake, url: str) -> None:
    told: list[None] = []
    plan = replace(PLAN, loads=streams(2, 3), requests=4, warmup=1)

    asyncio.run(run_load([Target(url)], plan, lambda: told.append(None)))

    assert plan.request_count == len(told) == 9


def test_a_refusal_is_counted_with_status_and_code(server: CompletionsFake, url: str) -> None:
    server.scripts = deque([(503, (b'{"error": {"code": "overloaded"}}',)), (500, (b"oops",))])

    assert {"http 503: overloaded": 1, "http 500": 1} == errors_of(url, replace(PLAN, requests=2))


def test_an_error_inside_a_stream_is_counted(server: CompletionsFake, url: str) -> None:
    server.stream = (chunk("a"), b'data: {"error": {"code": "numerical_error"}}\n\n', DONE)

    assert {"stream: numerical_error": 1} == errors_of(url)


def test_a_stream_that_breaks_off_is_an_error(server: CompletionsFake, url: str) -> None:
    server.stream = PLAIN[:2]

    assert {"stream: ended early": 1} == errors_of(url)


def test_a_stream_of_another_kind_is_an_error(server: CompletionsFake, url: str) -> None:
    server.stream = (b"data: hello\n\n", DONE)

    assert {"stream: not understood": 1} == errors_of(url)


def test_a_stream_in_an_encoding_that_it_has_not_is_an_error(server: CompletionsFake, url: str) -> None:
    server.headers = ((b"content-encoding", b"gzip"),)

    assert {"stream: not understood": 1} == errors_of(url)


@pytest.mark.parametrize("data", [b'{"usage": {"prompt_tokens": Infinity, "completion_tokens": 1}}', b"[" * 100_000])
def test_a_stream_whose_json_nobody_can_hold_is_an_error(data: bytes, server: CompletionsFake, url: str) -> None:
    server.stream = (chunk("a"), b"data: " + data + b"\n\n", DONE)

    assert {"stream: not understood": 1} == errors_of(url)


def test_an_empty_stream_is_an_error(server: CompletionsFake, url: str) -> None:
    server.stream = (DONE,)

    assert {"stream: no tokens": 1} == errors_of(url)


def test_silence_is_a_timeout(server: CompletionsFake, url: str) -> None:
    server.delay_s = 2.0

    assert {"timeout": 1} == errors_of(url, replace(PLAN, timeout_s=0.8))


def test_times_are_those_of_the_stream(server: CompletionsFake, url: str) -> None:
    server.delay_s = 0.05

    level = run(url).levels[0]

    assert level.time_to_first_token_s is not None
    assert level.request_s is not None
    assert 0.05 <= level.time_to_first_token_s.max <= level.request_s.max <= level.wall_s


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LoadError, match="does not answer"):
        run("http://127.0.0.1:1")


def test_a_server_that_lists_no_models_needs_one_named(server: CompletionsFake, url: str) -> None:
    server.paths.clear()

    with pytest.raises(LoadError, match="--model"):
        run(url)


def test_a_run_whose_warm_up_fails_ends_there(server: CompletionsFake, url: str) -> None:
    server.scripts = deque([(400, (b'{"error": {"code": "unknown_field"}}',))])

    with pytest.raises(LoadError, match="http 400: unknown_field"):
        run(url, replace(PLAN, warmup=1))


def test_requests_arrive_whatever_is_unanswered(server: CompletionsFake, url: str) -> None:
    server.waits_for = 6

    assert 6 == run(url, replace(PLAN, loads=(Load("rate", 1000),), requests=6)).levels[0].succeeded


def test_what_a_request_waited_since_it_was_due_counts_as_its_time(server: CompletionsFake, url: str) -> None:
    async def ask_late() -> StreamRecord:
        async with connected(Target(url), PLAN) as client:
            return await client.ask(Question("The rain", 3), due=time.perf_counter() - 50)

    assert 50 <= asyncio.run(ask_late()).time_to_first_token < 60


def test_no_request_of_an_open_loop_begins_before_it_is_due(server: CompletionsFake, url: str) -> None:
    level = run(url, replace(PLAN, loads=(Load("rate", 40),), requests=4)).levels[0]

    assert list(arrivals(40, 4, "1 0 0"))[-1] <= level.wall_s


def test_lengths_are_drawn_for_each_request(server: CompletionsFake, url: str) -> None:
    run(url, replace(PLAN, requests=8, prompt_tokens=Length(4, 9), output_tokens=Length(1, 50)))

    assert 1 < len({body["max_tokens"] for body in server.bodies})
    assert 1 < len({len(body["prompt"].split()) for body in server.bodies})


def test_prompts_begin_with_what_they_share(server: CompletionsFake, url: str) -> None:
    run(url, replace(PLAN, requests=3, warmup=1, prompt_tokens=Length(20, 20), shared_prefix=15))

    texts = [body["prompt"].split() for body in server.bodies]
    assert 1 == len({tuple(words[:15]) for words in texts})
    assert 4 == len({tuple(words) for words in texts})


def test_llama_cpp_may_use_its_cache_for_what_is_shared(server: CompletionsFake, url: str) -> None:
    server.paths["/props"] = {}

    run(url, replace(PLAN, shared_prefix=2))

    assert True is server.bodies[0]["cache_prompt"]


@pytest.fixture
def tane(server: CompletionsFake) -> CompletionsFake:
    server.paths["/info"] = {"name": "tane"}
    server.stream = turn(prompt_tokens=4, cached_tokens=3)
    return server


SESSIONS = replace(PLAN, loads=(Load("sessions", 2),), requests=None, prompt_tokens=Length(9, 9), turns=3)


def test_each_session_sends_its_turns_each_with_one_word_changed(tane: CompletionsFake, url: str) -> None:
    run(url, SESSIONS)

    texts: dict[str, list[list[str]]] = {}
    for body in tane.bodies:
        texts.setdefault(body["session_id"], []).append(body["prompt"].split())
    assert [3, 3] == [len(turns) for turns in texts.values()]
    for turns in texts.values():
        changes = [sum(old != new for old, new in zip(*pair, strict=True)) for pair in pairwise(turns)]
        assert [1, 1] == changes


def test_turns_are_counted_as_the_server_counts_them(tane: CompletionsFake, url: str) -> None:
    level = run(url, SESSIONS).levels[0]

    assert (6, 12, 24, 18) == (level.succeeded, level.generated_tokens, level.prompt_tokens, level.cached_tokens)


def test_the_whole_text_at_the_end_of_a_turn_is_no_token(tane: CompletionsFake, url: str) -> None:
    tane.stream = tuple(event for event in tane.stream if b'"index"' not in event)

    assert {"stream: no tokens": 6} == errors_of(url, SESSIONS)


def test_sessions_are_deleted_afterwards(tane: CompletionsFake, url: str) -> None:
    run(url, SESSIONS)

    named = {f"/sessions/{body['session_id']}" for body in tane.bodies}
    assert named == {path for method, path in tane.requests if method == "DELETE"}


def test_sessions_of_a_server_without_them_are_refused(server: CompletionsFake, url: str) -> None:
    with pytest.raises(LoadError, match="no POST /generate with session_id"):
        run(url, SESSIONS)
    assert [] == server.bodies


def test_tane_itself_takes_the_turns_of_sessions() -> None:
    with serving(create_app(make_service())) as url:
        assert {} == errors_of(url, replace(SESSIONS, turns=1))


def test_the_key_is_sent_with_every_request(server: CompletionsFake, url: str) -> None:
    asyncio.run(run_load([Target(url, api_key="s3cret")], PLAN, lambda: None))

    assert {"Bearer s3cret"} == server.keys


def test_a_server_that_wants_a_key_is_told_apart(server: CompletionsFake, url: str) -> None:
    server.refuses_listing = True

    with pytest.raises(LoadError, match="TANE_API_KEY"):
        run(url)


def test_servers_take_turns_and_the_order_is_reversed_every_second_round(server: CompletionsFake, url: str) -> None:
    plan = replace(PLAN, loads=streams(1, 2), requests=2, rounds=2)

    asyncio.run(run_load([Target(url, "a"), Target(url, "b")], plan, lambda: None))

    assert list("aabbaabbbbaabbaa") == [body["model"] for body in server.bodies]


def test_servers_are_asked_the_same(server: CompletionsFake, url: str) -> None:
    plan = replace(PLAN, requests=4, rounds=2, output_tokens=Length(1, 50))

    asyncio.run(run_load([Target(url, "a"), Target(url, "b")], plan, lambda: None))

    asked: dict[str, set[tuple[str, int]]] = {"a": set(), "b": set()}
    for body in server.bodies:
        asked[body["model"]].add((body["prompt"], body["max_tokens"]))
    assert asked["a"] == asked["b"]
    assert 8 == len(asked["a"])


def test_rounds_of_a_level_are_reported_together(server: CompletionsFake, url: str) -> None:
    level = run(url, replace(PLAN, requests=3, rounds=2)).levels[0]

    assert (6, 18) == (level.requests, level.generated_tokens)
    assert level.generated_tokens / level.wall_s == level.tokens_per_second
