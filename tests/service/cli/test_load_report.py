"""What a level reports follows from its streams alone, and failed streams count as errors only."""

from service.cli.load_report import StreamRecord, level_report


def stream(
    *arrivals: float, started: float = 0.0, ended: float = 2.0, usage: int | None = None, error: str | None = None
) -> StreamRecord:
    return StreamRecord(
        started=started, ended=ended, arrivals=arrivals, prompt_tokens=5, usage_tokens=usage, error=error
    )


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
    report = level_report(2, [stream(1.0, usage=6), stream(1.0, usage=4), FAILED], 4.0, 6)

    assert (2.5, 0.5) == (report.tokens_per_second, report.requests_per_second)


def test_errors_are_counted_by_kind() -> None:
    records = [stream(1.0), FAILED, FAILED, stream(error="http 503: overloaded")]

    report = level_report(4, records, 1.0, 1)

    assert {"timeout": 2, "http 503: overloaded": 1} == report.errors
    assert (4, 1) == (report.requests, report.succeeded)


def test_a_failed_stream_adds_no_tokens_and_no_times() -> None:
    good = [stream(1.0, 1.25, usage=2)]

    alone, beside = level_report(1, good, 1.0, 2), level_report(1, [*good, FAILED], 1.0, 2)

    assert alone.generated_tokens == beside.generated_tokens
    assert alone.request_s == beside.request_s
    assert alone.time_to_first_token_s == beside.time_to_first_token_s


def test_answers_shorter_than_asked_are_counted() -> None:
    assert 1 == level_report(1, [stream(1.0, usage=3), stream(1.0, usage=4)], 1.0, 4).short_answers


def test_the_report_says_how_tokens_were_counted() -> None:
    usage, chunks = stream(1.0, usage=3), stream(1.0)

    ways = [level_report(1, records, 1.0, 1).counted for records in ([usage], [chunks], [usage, chunks], [FAILED])]

    assert ["usage", "chunks", "mixed", None] == ways


def test_prompt_tokens_are_summed_over_streams() -> None:
    assert 10 == level_report(1, [stream(1.0), stream(1.0)], 1.0, 1).prompt_tokens


def test_a_level_without_success_has_no_times() -> None:
    report = level_report(1, [FAILED], 1.0, 1)

    assert (0.0, None, None) == (
        report.tokens_per_second,
        report.time_to_first_token_s,
        report.inter_token_latency_s,
    )
