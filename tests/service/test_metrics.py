"""What the metrics count, under which names, and what they do not do."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import OUTCOMES, Metrics, TokenRate
from service.step_report import StepReport
from tests.fake_runtime import ENGINE_INFO, FakeRuntime, failing, make_metrics
from tests.service.door import Client

IDLE = StepReport(
    prefill_rows=0,
    decode_rows=0,
    step_s=0.0,
    prompt_tokens=0,
    generated_tokens=0,
    queried_tokens=0,
    hit_tokens=0,
    evicted_tokens={},
    queue_s=(),
    time_to_first_token_s=(),
    inter_token_s=(),
    request_s=(),
    outcomes=(),
    running=0,
    queued=0,
    free_pages=512,
    idle_pages=0,
    leased_pages=0,
    ran=False,
)
BUSY = StepReport(
    prefill_rows=30,
    decode_rows=2,
    step_s=0.05,
    prompt_tokens=40,
    generated_tokens=3,
    queried_tokens=41,
    hit_tokens=10,
    evicted_tokens={"edit": 5, "capacity": 7},
    queue_s=(0.5,),
    time_to_first_token_s=(0.25, 0.75),
    inter_token_s=(0.01,),
    request_s=(2.0,),
    outcomes=("eos", "cancelled", "eos"),
    running=4,
    queued=6,
    free_pages=500,
    idle_pages=8,
    leased_pages=4,
    ran=True,
    drafted_tokens=9,
    accepted_tokens=4,
    preemptions=2,
)
NAMES = {
    "tane_prompt_tokens",
    "tane_generated_tokens",
    "tane_tokens_per_second",
    "tane_kv_cache_bytes",
    "tane_kv_cache_evicted_tokens",
    "tane_prefix_cache_queried_tokens",
    "tane_prefix_cache_hit_tokens",
    "tane_active_requests",
    "tane_reserved_tokens",
    "tane_requests",
    "tane_http_requests",
    "tane_model_info",
    "tane_time_to_first_token_seconds",
    "tane_inter_token_latency_seconds",
    "tane_request_seconds",
    "tane_queue_seconds",
    "tane_preemptions",
    "tane_step_rows",
    "tane_engine_steps",
    "tane_engine_rows",
    "tane_speculation_drafted_tokens",
    "tane_speculation_accepted_tokens",
}


def samples(text: bytes, model: str = "tiny") -> dict[str, float]:
    """Each series of the model as it is written but for the model's name, and its value."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.labels.pop("model", model) != model:
                continue
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def after(*reports: StepReport) -> dict[str, float]:
    metrics, models = make_metrics()
    for report in reports:
        models["tiny"].observe(report)
    return samples(metrics.render())


def families(client: Client) -> Iterable[Any]:
    return text_string_to_metric_families(client.get("/metrics").body.decode())


def test_every_promised_metric_is_there_from_the_start() -> None:
    assert {family.name for family in families(Client())} == NAMES


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ("tane_prompt_tokens_total", 80),
        ("tane_generated_tokens_total", 6),
        ("tane_prefix_cache_queried_tokens_total", 82),
        ("tane_prefix_cache_hit_tokens_total", 20),
        ('tane_kv_cache_evicted_tokens_total{reason="edit"}', 10),
        ('tane_kv_cache_evicted_tokens_total{reason="capacity"}', 14),
        ('tane_kv_cache_evicted_tokens_total{reason="ttl"}', 0),
        ('tane_kv_cache_evicted_tokens_total{reason="explicit"}', 0),
        ('tane_requests_total{outcome="eos"}', 4),
        ('tane_requests_total{outcome="cancelled"}', 2),
        ('tane_active_requests{state="running"}', 4),
        ('tane_active_requests{state="queued"}', 6),
        ('tane_kv_cache_bytes{state="free"}', 500 * 2048),
        ('tane_kv_cache_bytes{state="idle"}', 8 * 2048),
        ('tane_kv_cache_bytes{state="leased"}', 4 * 2048),
        ("tane_engine_steps_total", 2),
        ('tane_engine_rows_total{kind="prefill"}', 60),
        ('tane_engine_rows_total{kind="decode"}', 4),
        ("tane_step_rows_sum", 64),
        ("tane_step_rows_count", 2),
        ("tane_time_to_first_token_seconds_count", 4),
        ("tane_time_to_first_token_seconds_sum", 2.0),
        ("tane_inter_token_latency_seconds_count", 2),
        ("tane_request_seconds_sum", 4.0),
        ("tane_queue_seconds_sum", 1.0),
        ("tane_speculation_drafted_tokens_total", 18),
        ("tane_preemptions_total", 4),
        ("tane_speculation_accepted_tokens_total", 8),
    ],
)
def test_two_equal_reports_count_twice_and_gauges_show_the_last(series: str, expected: float) -> None:
    assert expected == after(BUSY, BUSY)[series]


def test_the_cache_is_free_before_the_first_step() -> None:
    assert ENGINE_INFO.page_count * ENGINE_INFO.page_bytes == after()['tane_kv_cache_bytes{state="free"}']


def test_every_outcome_is_there_at_zero() -> None:
    assert {0.0} == {after()[f'tane_requests_total{{outcome="{outcome}"}}'] for outcome in OUTCOMES}


def test_a_report_of_nothing_that_ran_counts_no_step() -> None:
    assert (0, 0) == (after(IDLE)["tane_engine_steps_total"], after(IDLE)["tane_step_rows_count"])


def test_a_report_of_nothing_that_ran_still_counts_what_ended() -> None:
    assert (
        1 == after(replace(IDLE, outcomes=("deadline_exceeded",)))['tane_requests_total{outcome="deadline_exceeded"}']
    )


def test_a_scrape_changes_nothing() -> None:
    metrics, models = make_metrics()
    models["tiny"].observe(BUSY)

    assert len({metrics.render() for _ in range(3)}) == 1


def test_tokens_per_second_are_those_of_the_last_ten_seconds() -> None:
    now = 100.0
    rate = TokenRate(lambda: now)
    rate.add(1000)
    now = 109.0
    rate.add(50)

    assert 105.0 == rate.read()
    now = 111.0
    assert 5.0 == rate.read()
    now = 200.0
    assert 0.0 == rate.read()


def test_the_memory_of_the_token_rate_is_bounded() -> None:
    now = 0.0
    rate = TokenRate(lambda: now)
    for _ in range(10_000):
        now += 0.01
        rate.add(1)

    assert 100.0 == pytest.approx(rate.read(), rel=0.03)
    assert len(rate._slots) <= 41


def test_http_answers_are_counted_by_template_and_status() -> None:
    client = Client()
    client.get("/sessions/known")
    client.get("/sessions/other")
    client.get("/nope")
    client.request("PUT", "/sessions/known")
    client.get("/v1/models/tiny")

    counts = samples(client.get("/metrics").body)

    assert 2 == counts['tane_http_requests_total{route="/sessions/{session_id}",status="200"}']
    assert 1 == counts['tane_http_requests_total{route="/sessions/{session_id}",status="405"}']
    assert 1 == counts['tane_http_requests_total{route="other",status="404"}']
    assert 1 == counts['tane_http_requests_total{route="/v1/models/{model_id:path}",status="200"}']


def test_an_exception_is_counted_as_500() -> None:
    client = Client(FakeRuntime(failing("engine_failed")))
    client.post("/generate", {"prompt": "a"})

    assert 1 == samples(client.get("/metrics").body)['tane_http_requests_total{route="/generate",status="500"}']


def test_inputs_make_no_labels() -> None:
    """A thousand different paths, bodies and sessions leave as many series as one of each kind."""

    def poke(client: Client, i: int) -> None:
        client.get(f"/nope/{i}")
        client.get(f"/sessions/s{i}")
        client.post("/generate", {"prompt": f"p{i}", "session_id": f"s{i}", f"field{i}": 1})
        client.post("/generate", json.dumps({"prompt": f"p{i}", "session_id": f"s{i}"}).encode())

    client = Client()
    poke(client, 0)
    client.get("/metrics")
    before = set(samples(client.get("/metrics").body))
    for i in range(1, 250):
        poke(client, i)

    assert before == set(samples(client.get("/metrics").body))


def test_two_apps_count_apart() -> None:
    (_, models), (other, _) = make_metrics(), make_metrics()
    models["tiny"].observe(BUSY)

    assert 0 == samples(other.render())["tane_generated_tokens_total"]


def test_the_model_info_names_what_is_served() -> None:
    metrics = Metrics()
    metrics.of_model('a"b\\c', page_bytes=1, page_count=1, about={"engine": "torch"})

    (info,) = [f for f in text_string_to_metric_families(metrics.render().decode()) if f.name == "tane_model_info"]
    assert {"model": 'a"b\\c', "engine": "torch"} == info.samples[0].labels


def test_reserved_tokens_are_those_of_the_moment_of_reading() -> None:
    metrics, models = make_metrics()
    reserved = [7]
    models["tiny"].show_reserved(lambda: reserved[0])
    reserved[0] = 320

    assert 320 == samples(metrics.render())["tane_reserved_tokens"]


def test_each_model_has_a_series_of_its_own() -> None:
    metrics, models = make_metrics("tiny", "small")
    models["small"].observe(BUSY)

    tiny, small = (samples(metrics.render(), name) for name in ("tiny", "small"))

    for series in (
        "tane_generated_tokens_total",
        'tane_kv_cache_bytes{state="leased"}',
        'tane_active_requests{state="queued"}',
        "tane_queue_seconds_count",
        'tane_requests_total{outcome="eos"}',
    ):
        assert 0 == tiny[series] < small[series]


def test_names_and_other_labels_are_the_same_for_every_model() -> None:
    metrics, _ = make_metrics("tiny", "small")

    assert samples(metrics.render(), "tiny").keys() == samples(metrics.render(), "small").keys()
