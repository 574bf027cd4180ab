"""The script that measures HTTP beside the bare engine."""

import pytest

from tests.bench.http_share import Round, summary


def test_the_share_is_the_middle_of_the_rounds_own() -> None:
    found = summary([Round(100, 90, 0.03), Round(200, 190, 0.04), Round(50, 25, 0.05)])

    assert (100, 90, 0.9, 0.04) == (
        found["bare_tokens_per_second"],
        found["http_tokens_per_second"],
        found["share"],
        found["client_cpu_share"],
    )
    assert pytest.approx((0.5, 0.95)) == (found["least_share"], found["most_share"])
