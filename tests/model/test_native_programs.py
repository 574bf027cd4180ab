"""The kernels' own tests, which are plain C++ programs, with and without sanitizers."""

import subprocess

import pytest

from tests.source_files import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["plain", "asan", "tsan"])
def test_every_program_passes(mode: str) -> None:
    """`asan` is AddressSanitizer and UndefinedBehaviorSanitizer together. Compiles everything, which takes minutes."""
    run = subprocess.run([str(ROOT / "tests" / "native" / "run.sh"), mode], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    programs = sorted(path.stem for path in (ROOT / "tests" / "native").glob("test_*.cpp"))
    assert [f"{name} ({mode})" in run.stdout for name in programs] == [True] * len(programs)
