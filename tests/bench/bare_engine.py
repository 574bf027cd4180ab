"""The native op set without the service around it: steps, a greedy choice for each row that asks, and their time."""

import time
from collections.abc import Sequence
from typing import Any

from model.batch import Batch, Segment
from model.decoding.params import Draw
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.ops.native_ops import Isa, KvType, NativeOps
from model.runner import ModelRunner
from service.op_sets import usable_cores

CHUNK = 512
"""Tokens of a prompt in one step."""
TOKEN_ID = 100
"""What every row reads: which token it is changes no time."""


class BareEngine:
    """A model on the native op set, with pages for some sequences of equal room."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        sequences: int,
        room: int,
        threads: int | None = None,
        kv_type: KvType = "int8",
        isa: Isa = "auto",
    ) -> None:
        """`room` is how many positions each sequence may take up."""
        self._pages_each = pages_for(room)
        pages = sequences * self._pages_each
        self.threads = threads or usable_cores()
        self.ops = NativeOps(checkpoint.config, pages, threads=self.threads, kv_type=kv_type, isa=isa)
        self._runner = ModelRunner(self.ops, checkpoint)

    def prefill(self, tokens: int, sequence: int = 0) -> float:
        """Compute a prompt of so many tokens, and choose what follows; the seconds it took."""
        taken = 0.0
        for start in range(0, tokens, CHUNK):
            count = min(CHUNK, tokens - start)
            taken += self._step([self._segment(sequence, start, count, asks=int(start + count == tokens))])
        return taken

    def job(self, sequences: int, prompt: int, answer: int) -> float:
        """Several prompts at once, and so many tokens after each, all choices made; the seconds it took."""
        taken = self._step([self._segment(sequence, 0, prompt, asks=1) for sequence in range(sequences)])
        return taken + sum(self.decode(prompt + done, sequences=sequences) for done in range(answer - 1))

    def decode(self, context: int, *, sequences: int = 1, steps: int = 1) -> float:
        """One token for each of the first sequences after so many positions; the seconds of one of some steps."""
        segments = [self._segment(sequence, context, 1, asks=1) for sequence in range(sequences)]
        return sum(self._step(segments) for _ in range(steps)) / steps

    def verify(self, context: int, rows: int, *, steps: int = 1) -> float:
        """So many tokens of one sequence at once, each with a choice after it; the seconds of one of some steps."""
        segments = [self._segment(0, context, rows, asks=rows)]
        return sum(self._step(segments) for _ in range(steps)) / steps

    def _segment(self, sequence: int, start: int, count: int, *, asks: int) -> Segment:
        first = sequence * self._pages_each
        pages = tuple(range(first, first + pages_for(start + count)))
        return Segment((TOKEN_ID,) * count, start, pages, asks)

    def _step(self, segments: Sequence[Segment]) -> float:
        draws = [greedy(row) for row in range(sum(segment.asks for segment in segments))]
        started = time.perf_counter()
        logits: Any = self._runner.forward(Batch(tuple(segments)))
        if draws:
            self.ops.choose(logits, draws)
        return time.perf_counter() - started


def greedy(row: int) -> Draw:
    return Draw(row=row, temperature=0, top_k=0, top_p=1, min_p=0, uniform=0)
