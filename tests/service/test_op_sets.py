"""Which op set runs, and on how many cores."""

import os
from pathlib import Path

import pytest

from service import op_sets
from service.op_sets import usable_cores


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_the_usable_cores_are_those_that_the_process_is_bound_to() -> None:
    assert len(os.sched_getaffinity(0)) == usable_cores()


def test_where_no_process_is_bound_to_cores_all_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)

    assert os.cpu_count() == usable_cores()


@pytest.mark.parametrize(
    ("written", "expected"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_control_groups_quota_bounds_the_cores(
    written: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(written)
    monkeypatch.setattr(op_sets, "CPU_LIMIT", limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)

    assert (expected or 3) == usable_cores()
