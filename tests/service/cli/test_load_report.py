"""What a level reports follows from its streams alone, and failed streams count as errors only."""

import pytest

from service.cli.load_report import Goodput, LevelReport, Objective, StreamRecord, level_report


def stream(
    *arrivals: float,
    started: float = 0.0,
    ended: float = 2.0,
    asked: int = 1,
    cached: int | None = None,
    usage: int | None = None,
    error: str | None = None,
) -> StreamRecord:
    return StreamRecord(
        started=started,
        ended=ended,
        arrivals=arrivals,
        asked_tokens=asked,
        prompt_tokens=5,
        cached_tokens=cached,
        usage_tokens=usage,
        error=error,
    )


def report_of(*records: StreamRecord, wall_s: float = 1.0, objective: Objective | None = None) -> LevelReport:
    return level_report("2 streams", 2, records, wall_s, objective)


FAILED = stream(error="timeout", ended=90.0, usage=50)


def test_time_to_first_token_counts_from_the_start() -> None:
    assert 0.5 == stream(1.5, 2.0, started=1.0).time_to_first_token


def test_gaps_lie_between_chunks() -> None:
    assert [0.5, 1.0] == stream(1.0, 1.5, 2.5).gaps


def test_tokens_are_the_servers_count_when_it_gives_one() -> None:
    assert 7 == stream(1.0, 2.0, usage=7).generated_tokens


def test_tokens_are_chunks_when_the_server_does_not_count() -> None:
    assert 2 == stream(1.0, 2.0).generated_tokens


def test_the_rate_of_a_stream_leaves_out_its_first_token() -> None:
    assert 4.0 == stream(1.0, 1.5, 2.0, usage=5).decode_tokens_per_second


def test_a_stream_that_came_at_once_has_no_rate() -> None:
    assert None is stream(1.0, usage=5).decode_tokens_per_second


def test_throughput_is_all_tokens_over_the_whole_time() -> None:
    report = report_of(stream(1.0, usage=6), stream(1.0, usage=4), FAILED, wall_s=4.0)

    assert (2.5, 0.5) == (report.tokens_per_second, report.requests_per_second)


def test_errors_are_counted_by_kind() -> None:
    records = [stream(1.0), FAILED, FAILED, stream(error="http 503: overloaded")]

    report = report_of(*records)

    assert {"timeout": 2, "http 503: overloaded": 1} == report.errors
    assert (4, 1) == (report.requests, report.succeeded)


def test_a_failed_stream_adds_no_tokens_and_no_times() -> None:
    good = [stream(1.0, 1.25, usage=2)]

    alone, beside = report_of(*good), report_of(*good, FAILED)

    assert alone.generated_tokens == beside.generated_tokens
    assert alone.request_s == beside.request_s
    assert alone.time_to_first_token_s == beside.time_to_first_token_s


def test_answers_shorter_than_asked_are_counted() -> None:
    assert 1 == report_of(stream(1.0, usage=3, asked=4), stream(1.0, usage=4, asked=4)).short_answers


def test_the_report_says_how_tokens_were_counted() -> None:
    usage, chunks = stream(1.0, usage=3), stream(1.0)

    ways = [report_of(*records).counted for records in ([usage], [chunks], [usage, chunks], [FAILED])]

    assert ["usage", "chunks", "mixed", None] == ways


def test_prompt_tokens_are_summed_over_streams() -> None:
    assert 10 == report_of(stream(1.0), stream(1.0)).prompt_tokens


def test_a_level_without_success_has_no_times() -> None:
    report = report_of(FAILED)

    assert (0.0, None, None) == (
        report.tokens_per_second,
        report.time_to_first_token_s,
        report.inter_token_latency_s,
    )


def test_cached_tokens_are_summed_over_streams() -> None:
    assert 7 == report_of(stream(1.0, cached=3), stream(1.0, cached=4)).cached_tokens


def test_cached_tokens_are_unknown_when_one_stream_does_not_say() -> None:
    assert None is report_of(stream(1.0, cached=3), stream(1.0)).cached_tokens


def test_time_between_tokens_of_a_stream_is_its_mean() -> None:
    assert 0.25 == stream(1.0, 1.75, 2.0, usage=5).seconds_per_token


@pytest.mark.parametrize(
    ("record", "met"),
    [
        (stream(0.5, 0.6, usage=3), True),
        (stream(0.51, 0.6, usage=3), False),
        (stream(0.5, 0.61, usage=3), False),
        (stream(0.4, usage=1), True),
        (stream(0.1, 0.2, usage=9, error="stream: ended early"), False),
    ],
)
def test_an_objective_is_met_in_both_times_or_not_at_all(record: StreamRecord, met: bool) -> None:
    assert met is Objective(ttft_ms=500, itl_ms=50.5).is_met_by(record)


def test_an_objective_may_have_one_limit_alone() -> None:
    slow = stream(0.4, 9.0, usage=2)

    assert (True, False) == (Objective(500, None).is_met_by(slow), Objective(None, 50).is_met_by(slow))


def test_goodput_is_the_share_of_all_requests_and_their_rate() -> None:
    report = report_of(stream(0.1), stream(9.0), FAILED, FAILED, wall_s=2.0, objective=Objective(500, None))

    assert Goodput(requests=1, share=0.25, requests_per_second=0.5) == report.goodput


def test_without_an_objective_there_is_no_goodput() -> None:
    assert None is report_of(stream(1.0)).goodput
