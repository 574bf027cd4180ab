"""The kernels' own tests, which are plain C++ programs. `make sanitize` runs them under sanitizers."""

import subprocess

import pytest

from tests.source_files import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_program_passes() -> None:
    run = subprocess.run(
        [str(ROOT / "tests" / "native" / "run.sh"), "plain"], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    programs = sorted(path.stem for path in (ROOT / "tests" / "native").glob("test_*.cpp"))
    assert [f"{name} (plain)" in run.stdout for name in programs] == [True] * len(programs)
