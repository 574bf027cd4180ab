"""What tests of the command line share: a tiny model file, and an environment without our variables."""

import os
from pathlib import Path

import pytest

from tests.tiny_model import write_tiny_gguf


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TANE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", format="Q8_0")
