"""A real model after a prompt is the decoder's own answer, computed anew for every sequence."""

from functools import partial

import numpy as np
import pytest

from model.ops.native_ops import NativeOps
from model.studies.beam import greedy, searched
from model.studies.prompt_model import PromptModel
from tests.memory_checkpoint import memory_checkpoint
from tests.paged_sequence import float64_ops
from tests.reference import forward as reference

PROMPT = list(range(40, 77))


def prompt_model(length: int = 6, width: int = 3) -> PromptModel:
    checkpoint = memory_checkpoint()
    return PromptModel(
        checkpoint, lambda pages: NativeOps(checkpoint.config, pages), PROMPT, length=length, width=width
    )


def test_the_next_row_is_that_of_a_forward_pass() -> None:
    checkpoint = memory_checkpoint()
    expected = reference.forward(checkpoint, PROMPT)[-1].numpy().astype(np.float32)

    row = PromptModel(checkpoint, partial(float64_ops, checkpoint), PROMPT).next_row()

    np.testing.assert_allclose(row, expected, rtol=1e-6)


def test_rows_together_have_the_bits_of_each_alone() -> None:
    model = prompt_model()
    sequences = [(5, 6), (7, 8), (5, 9)]

    together = model.rows(sequences)

    assert all(np.array_equal(row, model.rows([each])[0]) for row, each in zip(together, sequences, strict=True))


def test_one_beam_of_a_real_model_is_greedy() -> None:
    model = prompt_model()

    assert greedy(model, 6) == searched(model, 6, 1)


def test_what_does_not_fit_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="37 tokens and 220 more do not fit a context of 256"):
        prompt_model(length=220)
