"""A model that the engine cannot run is refused when it is loaded, in one line, and never at a request."""

from pathlib import Path

import pytest

from model.loading.checkpoint import ModelFileError
from service.settings import Settings
from service.startup import load
from tests.tiny_model import TinyShape, tiny_weights, write_tiny_gguf

REFUSED = {
    "heads of 12 numbers": (TinyShape(heads=8, kv_heads=4, head_width=12), "no attention for these heads"),
    "33 query heads for a key head": (TinyShape(heads=33, kv_heads=1, head_width=32), "no attention for these heads"),
    "rows of 72 numbers": (TinyShape(heads=3, kv_heads=1, head_width=24), "inputs must be a multiple of 32"),
    "a feed-forward layer of 100": (TinyShape(feed_forward=100), "inputs must be a multiple of 32"),
}


def load_native(model: Path) -> None:
    load(Settings.load({}, {"model": str(model), "engine": "native", "kv_cache_bytes": 1 << 20}))


@pytest.mark.parametrize("name", REFUSED)
def test_a_shape_that_no_kernel_works_on_is_refused(name: str, tmp_path: Path) -> None:
    shape, problem = REFUSED[name]
    model = write_tiny_gguf(tmp_path / "odd.gguf", shape=shape)

    with pytest.raises(ModelFileError, match=problem):
        load_native(model)


def test_weights_too_great_for_their_scales_are_refused(tmp_path: Path) -> None:
    weights = tiny_weights()
    weights["blk.1.ffn_up.weight"][3, 4] = 1e9
    model = write_tiny_gguf(tmp_path / "great.gguf", weights=weights)

    with pytest.raises(ModelFileError, match=r"layers\.1\.up holds numbers that are too great"):
        load_native(model)
