"""Fixtures that every test may use."""

from pathlib import Path

import pytest

from model.loading.hub import pull


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file, pulled first when it is missing. Tests that use it are marked slow."""
    return pull()
