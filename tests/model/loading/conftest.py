"""What tests of the hub share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import FakeHub, running
from tests.hub_puller import FILES, Puller


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub(dict(FILES))) as hub:
        yield hub


@pytest.fixture
def pull(tmp_path: Path, hub: FakeHub) -> Puller:
    return Puller(tmp_path, hub)
