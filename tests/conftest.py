"""Fixtures that every test may use."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from model.loading.hub import pull

# Machines that run tests are shared: how long an example takes says nothing about the code.
settings.register_profile("tane", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tane")


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file, pulled first when it is missing. Tests that use it are marked slow."""
    return pull()
