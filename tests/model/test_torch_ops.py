"""The torch op set on its own: weights, products, copies, and rows that keep to themselves."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from model.batch import Batch, PageCopy, Segment
from model.decoding.params import Draw, Drawn
from model.ops.torch_ops import FEW_ROWS, TorchOps
from model.ops.torch_step import inverse_frequencies
from model.runner import ModelRunner
from tests.memory_checkpoint import config_of, memory_checkpoint, stored_in_memory
from tests.paged_sequence import PagedSequence, float64_ops
from tests.reference import forward as reference
from tests.tiny_model import TinyShape, llama_3_factors

SHAPE = TinyShape()
CHECKPOINT = memory_checkpoint(SHAPE)
ROW_COUNTS = (1, 2, FEW_ROWS, FEW_ROWS + 1, 9, 40)


@pytest.fixture
def ops() -> TorchOps:
    """In float32, where products take a path of their own."""
    return TorchOps(CHECKPOINT.config, 8)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def start(ops: TorchOps, *copies: PageCopy) -> None:
    """Begin a step of one row that writes page 0."""
    ops.start(Batch((Segment((5,), 0, (0,), asks=1),), copies))


def test_parts_are_stacked_along_the_outputs(ops: TorchOps) -> None:
    parts = [np.full((rows, 3), rows, dtype=np.float32) for rows in (2, 1)]

    stacked = ops.matrix(*(stored_in_memory("part", part) for part in parts))

    assert [[2, 2, 2], [2, 2, 2], [1, 1, 1]] == stacked.tolist()


def test_weights_are_held_in_the_type_of_the_op_set() -> None:
    ops = TorchOps(CHECKPOINT.config, 1, dtype=torch.float64)
    stored = stored_in_memory("part", np.ones((2, 2), dtype=np.float32))

    held = [ops.matrix(stored), ops.vector(stored_in_memory("gain", np.ones(2, dtype=np.float32))), ops.pages]

    assert [torch.float64] * 3 == [tensor.dtype for tensor in held]


def test_a_page_holds_keys_and_values_of_32_positions_in_every_layer(ops: TorchOps) -> None:
    assert (SHAPE.layers, 2, SHAPE.kv_heads, 8, 32, SHAPE.head_width) == tuple(ops.pages.shape)
    assert 8 * 32 * CHECKPOINT.config.cached_numbers_per_position == ops.pages.numel()


@pytest.mark.parametrize("rows", ROW_COUNTS)
@pytest.mark.parametrize("outputs", [96, 36, 37, 1])
def test_float32_products_are_close_to_exact_ones(ops: TorchOps, rows: int, outputs: int) -> None:
    x, weight = random(rows, 64), random(outputs, 64, seed=1)

    product = ops.linear(x, weight)

    torch.testing.assert_close(product.double(), x.double() @ weight.double().T, rtol=1e-5, atol=1e-5)
    assert product.is_contiguous()


def test_no_rows_have_no_products(ops: TorchOps) -> None:
    assert (0, 96) == tuple(ops.linear(random(0, 64), random(96, 64)).shape)


@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_a_nan_in_one_row_reaches_no_other_row(rows: int) -> None:
    """A sequence whose numbers went wrong takes none of its neighbours along."""
    ops = TorchOps(CHECKPOINT.config, rows + 1)
    ops.pages.fill_(torch.nan)
    runner = ModelRunner(ops, CHECKPOINT)
    sequences = [PagedSequence([page]) for page in range(rows + 1)]
    runner.forward(Batch(tuple(sequence.segment([3, 4]) for sequence in sequences)))
    ops.pages[:, :, :, rows, 1] = torch.nan

    logits = runner.forward(Batch(tuple(sequence.segment([5]) for sequence in sequences)))

    assert not logits[:rows].isnan().any()
    assert logits[rows].isnan().all()


def copied(ops: TorchOps, *copies: PageCopy) -> Callable[[int], list[float]]:
    """Fill page p with p, copy, and tell what the positions of a page then hold."""
    pages = ops.pages
    pages.copy_(torch.arange(8.0).view(8, 1, 1).expand(pages.shape))
    start(ops, *copies)

    def positions_of(page: int) -> list[float]:
        values = pages[:, :, :, page].movedim(3, 0).flatten(1)
        assert (values == values[:, :1]).all(), "layers, heads, keys and values differ"
        return values[:, 0].tolist()

    return positions_of


def test_a_copy_takes_the_first_positions_of_a_page(ops: TorchOps) -> None:
    positions_of = copied(ops, PageCopy(source=1, target=2, positions=5))

    assert [1.0] * 5 + [2.0] * 27 == positions_of(2)
    assert [1.0] * 32 == positions_of(1)
    assert [3.0] * 32 == positions_of(3)


def test_copies_happen_in_order(ops: TorchOps) -> None:
    """A copy reads what the copies before it wrote."""
    positions_of = copied(ops, PageCopy(1, 2, 20), PageCopy(2, 3, 30), PageCopy(4, 1, 32))

    assert [1.0] * 20 + [2.0] * 10 + [3.0] * 2 == positions_of(3)
    assert [1.0] * 20 + [2.0] * 12 == positions_of(2)
    assert [4.0] * 32 == positions_of(1)


def test_copies_happen_before_rows_are_written() -> None:
    """A row that writes the page that is copied from does not show in the copy."""
    ops = float64_ops(CHECKPOINT, 3)
    runner = ModelRunner(ops, CHECKPOINT)
    first, second = PagedSequence([0]), PagedSequence([1])
    first.feed(runner, [3, 4])
    first.length, second.length = 1, 2
    copies = (PageCopy(source=0, target=1, positions=2),)

    logits = runner.forward(Batch((first.segment([9]), second.segment([5])), copies))

    expected = [reference.forward(CHECKPOINT, token_ids)[-1] for token_ids in ([3, 9], [3, 4, 5])]
    torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_a_row_writes_its_own_position_only() -> None:
    ops = float64_ops(CHECKPOINT, 4)
    sequence, runner = PagedSequence([3, 1]), ModelRunner(ops, CHECKPOINT)

    sequence.feed(runner, range(33))
    sequence.feed(runner, [5, 6])

    written = ops.pages.isnan().logical_not()
    assert (written.all(dim=(0, 1, 2, 5)) == written.any(dim=(0, 1, 2, 5))).all()
    expected = [[1, 0], [1, 1], [1, 2], *([3, position] for position in range(32))]
    assert expected == written.all(dim=(0, 1, 2, 5)).nonzero().tolist()


def test_float32_logits_are_near_those_of_float64() -> None:
    token_ids = list(range(40))
    runner = ModelRunner(TorchOps(CHECKPOINT.config, 2), CHECKPOINT)

    logits = PagedSequence(range(2)).feed_in_pieces(runner, token_ids, 5)

    expected = reference.forward(CHECKPOINT, token_ids)[4::5]
    bound = 1e-5 * float(expected.abs().max())
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=bound)


def test_rotary_frequencies_fall_from_one_by_equal_ratios() -> None:
    frequencies = inverse_frequencies(16, 10000.0, None)

    expected = [10000.0 ** (-i / 8) for i in range(8)]
    np.testing.assert_allclose(frequencies.numpy(), expected, rtol=1e-6)


def test_rotary_frequencies_are_stretched_as_llama_3_does() -> None:
    plain = inverse_frequencies(32, 50000.0, None)
    config = config_of(TinyShape(head_width=32, rope_base=50000.0, rope_factor=8.0))
    stretched = inverse_frequencies(32, 50000.0, config.rope_scaling)

    np.testing.assert_allclose((plain / stretched).numpy(), llama_3_factors(32, 50000.0, 8.0), rtol=1e-5)


def test_tokens_are_chosen_from_what_a_step_returned() -> None:
    ops = float64_ops(CHECKPOINT, 2)
    logits = ModelRunner(ops, CHECKPOINT).forward(Batch(tuple(Segment((i,), 0, (i,), asks=1) for i in range(2))))
    draws = [Draw(row=row, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, uniform=0.5) for row in (1, 0)]

    assert [Drawn(int(logits[row].argmax())) for row in (1, 0)] == ops.choose(logits, draws)


def test_torch_is_left_as_it_was(ops: TorchOps) -> None:
    def state() -> tuple[object, ...]:
        threads = torch.get_num_threads(), torch.get_num_interop_threads()
        return (*threads, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())

    before = state()

    ModelRunner(ops, CHECKPOINT).forward(Batch((Segment((1,), 0, (0,), asks=1),)))

    assert before == state()


def test_attention_over_one_position_is_its_value() -> None:
    """The softmax of one score is 1 whatever the score."""
    ops = float64_ops(CHECKPOINT, 1)
    start(ops)
    values = random(1, 32, seed=3).double()

    with torch.inference_mode():
        ops.store(0, random(1, 32).double(), values)
        attended = ops.attend(0, random(1, 64, seed=1).double())

    expected = values.view(2, 1, 16).expand(2, 2, 16).reshape(1, 64)
    torch.testing.assert_close(attended, expected, rtol=1e-15, atol=0)


def test_gate_and_norm_follow_their_formulas(ops: TorchOps) -> None:
    x, gain = random(3, 64), random(64, seed=1)

    expected_gate = x / (1 + torch.exp(-x)) * random(3, 64, seed=2)
    torch.testing.assert_close(ops.silu_multiply(x, random(3, 64, seed=2)), expected_gate)
    norms = [math.sqrt(sum(float(v) ** 2 for v in row) / 64 + 1e-5) for row in x]
    torch.testing.assert_close(ops.rms_norm(x, gain, 1e-5), x / torch.tensor(norms)[:, None] * gain)
