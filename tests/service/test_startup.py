"""What is worked out before anything is served."""

import os

import pytest

from service.startup import usable_cores


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_the_usable_cores_are_those_that_the_process_is_bound_to() -> None:
    assert len(os.sched_getaffinity(0)) == usable_cores()


def test_where_no_process_is_bound_to_cores_all_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)

    assert os.cpu_count() == usable_cores()
