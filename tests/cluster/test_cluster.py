"""Replicas behind Ray Serve on this machine, where Ray is installed."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.source_files import ROOT

SMALL = ("--streams", "4", "--tokens", "64", "--sessions", "4", "--groups", "4")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra: make cluster installs it and runs this in full")
def test_replicas_keep_what_belongs_together_and_lose_nothing() -> None:
    command = [sys.executable, "-m", "tests.cluster", "--json", *SMALL]

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    found = json.loads(answer.stdout)
    assert [] == found["failover"]["lost"]
    assert found["affinity"] >= 0.95
    assert found["holds"], answer.stdout
