"""What follows a prompt by a real model: a row of logits after the prompt, or after some more tokens.

Knows an op set and a checkpoint; no text. Always: everything is computed anew from the prompt on, so no answer depends
on what was asked before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch, Segment
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.ops.native_choice import Rows
from model.runner import ModelRunner
from model.studies.beam import Tokens

MakeOps = Callable[[int], Any]
"""From a number of pages to an op set."""


class PromptModel:
    """A checkpoint after a prompt, as an autoregressive model of what comes next."""

    def __init__(
        self, checkpoint: Checkpoint, make_ops: MakeOps, prompt: Sequence[int], *, length: int = 0, width: int = 1
    ) -> None:
        """For `width` sequences at once, of `length` tokens after a prompt of at least one.

        Raises:
            ValueError: when those do not fit the context.
        """
        positions, context = len(prompt) + length, checkpoint.config.context_length
        if positions > context:
            raise ValueError(f"{len(prompt)} tokens and {length} more do not fit a context of {context}")
        self._prompt = tuple(prompt)
        self._pages_each = pages_for(positions)
        self._runner = ModelRunner(make_ops(width * self._pages_each), checkpoint)
        self.vocabulary = checkpoint.config.vocabulary_size

    def rows(self, sequences: Sequence[Tokens]) -> Rows:
        """Logits after the prompt and each sequence [sequences, vocabulary]."""
        segments = tuple(self._segment(index, tokens) for index, tokens in enumerate(sequences))
        rows: Rows = np.array(self._runner.forward(Batch(segments)).numpy(), dtype=np.float32)
        return rows

    def next_row(self) -> NDArray[np.float32]:
        """Logits of the first token after the prompt [vocabulary]."""
        row: NDArray[np.float32] = self.rows([()])[0]
        return row

    def _segment(self, index: int, tokens: Tokens) -> Segment:
        first = index * self._pages_each
        return Segment((*self._prompt, *tokens), 0, tuple(range(first, first + self._pages_each)), 1)
