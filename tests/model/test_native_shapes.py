"""Odd shapes: every instruction set, thread count and cut gives the scalar bits of a whole model."""

from pathlib import Path

import numpy as np
import pytest

from model.batch import Batch, Segment
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.ops.native_forms import WeightType
from model.ops.native_ops import Isa, KvType, NativeOps
from model.runner import ModelRunner
from tests.bits.conditions import available_isas
from tests.tiny_model import FOR_EVERY_FORMAT, FormatName, TinyShape, write_tiny_gguf

PROMPT = tuple(3 + 7 * index % 290 for index in range(161))
PAGES = pages_for(len(PROMPT))

ODD: dict[str, tuple[TinyShape, FormatName, KvType, WeightType]] = {
    "narrowest heads": (TinyShape(heads=4, kv_heads=4, head_width=8, width=32), "Q4_1", "int8", "int8"),
    "narrowest heads, halves": (TinyShape(heads=8, kv_heads=1, head_width=8, width=32), "Q4_0", "float16", "int8"),
    "widest heads": (TinyShape(layers=1, heads=2, kv_heads=1, head_width=256), "Q8_0", "int8", "int8"),
    "widest heads, halves": (TinyShape(layers=1, heads=1, kv_heads=1, head_width=256), "F32", "float16", "int8"),
    "heads of 40": (TinyShape(heads=4, kv_heads=2, head_width=40, width=288), "BF16", "int8", "int4"),
    "heads of 24": (TinyShape(heads=8, kv_heads=2, head_width=24, width=96), "F16", "float16", "int4"),
    "groups of five": (TinyShape(heads=20, kv_heads=4, head_width=8, width=160), "Q4_1", "int8", "int8"),
    "wide feed-forward layer": (TinyShape(layers=1, feed_forward=1504, vocabulary=401), "Q4_0", "int8", "int8"),
    "4 bits and float32 scales": (FOR_EVERY_FORMAT, "Q4_K", "int8", "int8"),
    "8 bits and float32 scales": (FOR_EVERY_FORMAT, "Q5_K", "float16", "int8"),
    "scales of both signs": (FOR_EVERY_FORMAT, "Q3_K", "int8", "int8"),
    "untied, odd vocabulary": (TinyShape(feed_forward=32, vocabulary=333, tied=False), "F32", "int8", "int4"),
}


def last_logits(
    checkpoint: Checkpoint, kv_type: KvType, weight_type: WeightType, *, isa: Isa, threads: int, chunk: int
) -> bytes:
    ops = NativeOps(checkpoint.config, PAGES, isa=isa, threads=threads, kv_type=kv_type, weight_type=weight_type)
    runner = ModelRunner(ops, checkpoint)
    ops.poison_pages()
    for start in range(0, len(PROMPT), chunk):
        segment = Segment(PROMPT[start : start + chunk], start, tuple(range(PAGES)), asks=1)
        logits = runner.forward(Batch((segment,))).numpy()
    assert np.isfinite(logits).all()
    return bytes(logits.tobytes())


@pytest.mark.parametrize("name", ODD)
def test_an_odd_shape_gives_the_scalar_bits(name: str, tmp_path: Path) -> None:
    shape, format, kv_type, weight_type = ODD[name]
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "odd.gguf", shape=shape, format=format))
    expected = last_logits(checkpoint, kv_type, weight_type, isa="scalar", threads=1, chunk=160)

    for isa in available_isas():
        for threads, chunk in ((1, 7), (3, 160), (5, 33)):
            found = last_logits(checkpoint, kv_type, weight_type, isa=isa, threads=threads, chunk=chunk)
            assert expected == found
