"""The load client and the server's metrics speak of the same requests."""

from pathlib import Path

import pytest

from service.cli.load_plan import Load
from service.cli.load_report import LevelReport, StreamRecord, level_report
from service.settings import Settings
from tests.bench.load_agreement import THROUGHPUT, Pair, measured, pairs, scraped, table
from tests.live import live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

HIDDEN_S = 2.0
"""What a busy machine may put between a token's making and its arrival; an idle one needs a few milliseconds."""


def level(tokens: int) -> LevelReport:
    arrivals = tuple(1.0 + 0.5 * token for token in range(tokens))
    record = StreamRecord(
        started=0.0,
        ended=2.0,
        arrivals=arrivals,
        asked_tokens=tokens,
        prompt_tokens=5,
        cached_tokens=0,
        usage_tokens=tokens,
        error=None,
    )
    return level_report("1 streams", 1, [record], 2.0)


def samples(tokens: float, seconds: float) -> dict[str, float]:
    times = ("tane_time_to_first_token_seconds", "tane_inter_token_latency_seconds", "tane_request_seconds")
    sums, counts = ({f"{name}_{part}": seconds for name in times} for part in ("sum", "count"))
    return {"tane_generated_tokens_total": tokens} | sums | {name: 2 * count for name, count in counts.items()}


def test_a_difference_is_a_share_of_the_servers_figure() -> None:
    assert 0.25 == Pair(client=5.0, server=4.0).difference


def test_means_and_rates_are_those_between_two_readings() -> None:
    found = pairs(level(3), samples(10, 4.0), samples(13, 6.0), 4.0)

    assert Pair(client=1.0, server=0.5) == found["time to first token, s"]
    assert Pair(client=1.5, server=0.75) == found[THROUGHPUT]


def test_other_tokens_are_not_compared() -> None:
    with pytest.raises(RuntimeError, match="the server counts 2 tokens, the client 3"):
        pairs(level(3), samples(10, 4.0), samples(12, 6.0), 4.0)


def test_the_table_tells_each_difference() -> None:
    assert "| 1 streams | x | 5 | 4 | +25.0% |" in table({"1 streams": {"x": Pair(5.0, 4.0)}})


@pytest.mark.slow
def test_tokens_are_equal_and_first_tokens_reach_the_client_after_the_server_made_them(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(context=256))

    with live_server(Settings.load({}, {"model": str(model), "kv_cache_bytes": 4 << 20, "threads": 1})) as server:
        before = scraped(server.url)
        # Raises unless the tokens are equal.
        found = measured(server.url, Load("concurrency", 4), requests=12, prompt=16, answer=24, seed=1)
        after = scraped(server.url)

    first = found["time to first token, s"]
    assert 12 * 24 == after["tane_generated_tokens_total"] - before["tane_generated_tokens_total"]
    assert 12 == after["tane_time_to_first_token_seconds_count"] - before["tane_time_to_first_token_seconds_count"]
    assert 0 < first.server <= first.client < first.server + HIDDEN_S
