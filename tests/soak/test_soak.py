"""A soak too short for a slope, on a tiny model; `python -m tests.soak` takes half an hour and the default model."""

from pathlib import Path

import pytest

from tests.soak.report import soak
from tests.soak.samples import Sample, growth, slope_per_hour
from tests.tiny_model import TinyShape, write_tiny_gguf

SECONDS = 60.0


def sample(at_s: float, own_bytes: int) -> Sample:
    return Sample(at_s, own_bytes, own_bytes, threads=8, descriptors=13, series=140)


@pytest.mark.slow
def test_a_server_under_every_kind_of_call_grows_nothing_and_changes_no_bit(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(context=2048))

    report = soak(SECONDS, callers=3, every_s=0.5, options=("--model", str(model), "--kv-cache-bytes", str(4 << 20)))

    assert report.holds, report.figures


def test_a_slope_is_that_of_the_line_through_the_samples() -> None:
    samples = [sample(60 * minute, 1000 + 10 * minute) for minute in range(10)]

    assert 600 == pytest.approx(slope_per_hour(samples, "own_bytes"))


def test_growth_is_between_the_medians_of_the_first_and_of_the_last_third() -> None:
    samples = [sample(minute, size) for minute, size in enumerate((9, 5, 6, 7, 7, 7, 2, 20, 9))]

    assert 3 == growth(samples, "own_bytes")
    assert 0 == growth(samples, "threads")
