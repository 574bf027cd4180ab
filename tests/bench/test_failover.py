"""What is told of streams whose server was killed: how many are as they should be, and how long each one paused."""

from typing import Any

import pytest

from tests.bench import failover
from tests.bench.failover import Heard, questions


def figures(*outcomes: tuple[str, bool, int, float]) -> dict[str, Any]:
    names = ("kind", "equal", "resumed_tokens", "pause_s")
    told = [dict(zip(names, each, strict=True)) for each in outcomes]
    return {"model": "m", "streams": 2, "command": "command", "outcomes": told}


def test_the_table_tells_what_differs_and_the_pauses() -> None:
    table = failover.table(figures(("greedy", True, 8, 0.25), ("greedy", False, 9, 1.5), ("sampled", True, 7, 0.5)))

    assert "| greedy | 1 of 2 | 8 to 9 | 0.88 | 1.50 |" in table
    assert "| all | 2 of 3 | 7 to 9 | 0.50 | 1.50 |" in table


def test_a_pause_is_one_that_ends_after_the_kill() -> None:
    heard = Heard("greedy", times=[0.0, 5.0, 5.1, 6.0, 6.2])

    assert [pytest.approx(0.9), 0.0] == [heard.pause_s(5.5), heard.pause_s(7.0)]


def test_all_kinds_are_asked_with_seeds_of_their_own() -> None:
    asked = questions(8, 50)

    assert set(failover.KINDS) == {kind for kind, _ in asked}
    assert 8 == len({fields["seed"] for _, fields in asked})


@pytest.mark.parametrize("outcome", [("greedy", False, 8, 0.1), ("greedy", True, 0, 0.1)])
def test_a_difference_or_an_uncut_stream_is_a_failure(
    outcome: tuple[str, bool, int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "measure", lambda *_: figures(outcome))
    monkeypatch.setattr(failover, "pull", lambda: None)

    with pytest.raises(SystemExit) as ended:
        failover.main([], standalone_mode=False)

    assert 1 == ended.value.code
