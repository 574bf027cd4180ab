"""The op sets' own calls: what they draw, rank and score is of the rows that their program gave last."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.batch import Batch, Segment
from model.decoding.params import Draw, LogitEdits, LogprobOptions, Ranking, Score
from model.loading.gguf import load_gguf
from model.ops.native_ops import NativeOps
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from tests.choosers import CHOOSERS
from tests.tiny_model import TinyShape, write_tiny_gguf

OP_SETS = {"native": NativeOps, "torch": TorchOps}
CHANGES: dict[str, Any] = {
    "banned": (3,),
    "edits": LogitEdits(
        bias_ids=np.array([5, 299], dtype=np.int32),
        bias_values=np.array([0.5, -1.0], dtype=np.float32),
        seen_ids=np.array([0, 7], dtype=np.int32),
        seen_counts=np.array([0, 2], dtype=np.int32),
        repetition=1.3,
        presence=0.1,
        frequency=0.2,
    ),
    "allowed": np.full(10, 0xF0FF_FF0F, dtype=np.uint32),
}
PLAIN: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "uniform": 0.4}
DRAWS = [
    Draw(0, **PLAIN, logprobs=LogprobOptions(3, "model")),
    Draw(1, **PLAIN | CHANGES, logprobs=LogprobOptions(3, "sampled"), explain=True),
    Draw(1, **PLAIN, explain=True),
]
RANKINGS = [Ranking(1, 4), Ranking(0, 7, **CHANGES)]
SCORES = [Score(0, 17, 2), Score(1, 0)]


@pytest.mark.parametrize("name", OP_SETS)
def test_choices_are_those_of_the_rows_handed_over(name: str, tmp_path: Path) -> None:
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", shape=TinyShape(layers=1), format="Q4_1"))
    ops: Any = OP_SETS[name](checkpoint.config, 4)
    batch = Batch((Segment((5, 6, 7), 0, (0,), asks=True), Segment((9,), 0, (1,), asks=True)), ())
    logits = ModelRunner(ops, checkpoint).forward(batch)
    rows, chooser = np.ascontiguousarray(logits.numpy()), CHOOSERS[name]()

    assert chooser.choose(rows, DRAWS) == ops.choose(logits, DRAWS)
    assert chooser.rank(rows, RANKINGS) == ops.rank(logits, RANKINGS)
    assert chooser.score(rows, SCORES) == ops.score(logits, SCORES)
