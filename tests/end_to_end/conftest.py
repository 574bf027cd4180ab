"""What whole servers share."""

from collections.abc import Iterator

import pytest

from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server of a tiny model; modules that need another have a `live` of their own."""
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=512))
    with live_server(Settings.load({}, {"model": str(path), "kv_cache_bytes": 4 << 20})) as server:
        yield server
