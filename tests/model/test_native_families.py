"""Every family on the native op set: close to torch with the same rounding, and the same bits however it is run."""

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from model.batch import Batch, PageCopy, Segment
from model.config import SlidingWindow
from model.kv_cache import PAGE_SIZE, pages_for
from model.loading.checkpoint import Checkpoint
from model.ops.native_ops import KvType, NativeOps
from model.ops.torch_ops import TorchOps
from model.ops.torch_simulated import SimulatedOps
from model.runner import ModelRunner
from tests.bits.conditions import available_isas
from tests.tiny_families import CONFIGS, PAGES, Logits, family_checkpoint, last_logits, native_runner

LENGTH = 160
"""Several windows, and more than one block of 128 positions."""
KV_TYPES: Sequence[KvType] = ("int8", "float16")


@cache
def checkpoint_of(family: str) -> Checkpoint:
    return family_checkpoint(family)


@cache
def expected_logits(family: str, kv_type: KvType, length: int = LENGTH) -> Logits:
    """Of the scalar definition, whole at once, on one thread."""
    return last_logits(native_runner(checkpoint_of(family), isa="scalar", kv_type=kv_type), ids(length))


def ids(count: int, seed: int = 0) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(300) for _ in range(count))


def relative_error(expected: Logits, found: Logits) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def assert_same_bits(expected: Logits, found: Logits) -> None:
    assert expected.tobytes() == found.tobytes()


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_are_close_to_torchs_from_numbers_rounded_likewise(family: str) -> None:
    """Sums in another order turn a rounding here and there; one position more in a window, or a hundredth more in a
    scale, are further than that."""
    checkpoint, tokens = checkpoint_of(family), ids(LENGTH)
    batch = Batch((Segment(tokens, 0, tuple(range(pages_for(LENGTH))), asks=LENGTH),))
    expected = ModelRunner(SimulatedOps(checkpoint.config, PAGES), checkpoint).forward(batch).numpy()

    found = native_runner(checkpoint).forward(batch).numpy()

    assert relative_error(expected, found) < 0.022


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_are_close_to_the_oracles(family: str) -> None:
    """In float64, without any rounding."""
    checkpoint, tokens = checkpoint_of(family), ids(LENGTH)
    batch = Batch((Segment(tokens, 0, tuple(range(pages_for(LENGTH))), asks=LENGTH),))
    oracle = ModelRunner(TorchOps(checkpoint.config, PAGES, dtype=torch.float64), checkpoint)

    found = native_runner(checkpoint).forward(batch).numpy()

    assert relative_error(oracle.forward(batch).numpy(), found) < 0.08


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("family", CONFIGS)
def test_every_instruction_set_and_thread_count_gives_the_scalar_bits(
    family: str, kv_type: KvType, threads: int
) -> None:
    for isa in available_isas():
        runner = native_runner(checkpoint_of(family), threads=threads, isa=isa, kv_type=kv_type)

        assert_same_bits(expected_logits(family, kv_type), last_logits(runner, ids(LENGTH)))


@pytest.mark.parametrize("chunk", [1, 7, 32, 64])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("family", CONFIGS)
def test_a_prompt_gives_the_same_bits_however_it_is_cut(family: str, kv_type: KvType, chunk: int) -> None:
    runner = native_runner(checkpoint_of(family), threads=2, kv_type=kv_type)

    assert_same_bits(expected_logits(family, kv_type), last_logits(runner, ids(LENGTH), chunk=chunk))


@pytest.mark.parametrize("length", [1, 23, 24, 25, 26, 127, 128, 129, 151, 300])
@pytest.mark.parametrize("family", ["mistral", "mistral, a window over blocks", "gemma3"])
def test_a_row_alone_gives_the_bits_of_the_whole_prompt_wherever_its_window_begins(family: str, length: int) -> None:
    runner = native_runner(checkpoint_of(family), threads=4)
    tokens = ids(length)
    expected = last_logits(runner, tokens)
    segment = Segment(tokens[-1:], length - 1, tuple(range(pages_for(length))), asks=1)

    assert_same_bits(expected, runner.forward(Batch((segment,))).numpy()[0])
    assert_same_bits(expected_logits(family, "int8", length), expected)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_row_gives_the_same_bits_among_neighbours(family: str) -> None:
    """Decode rows and prompt chunks of others, before and after it, in the same step."""
    tokens = ids(LENGTH)
    runner = native_runner(checkpoint_of(family), threads=2)
    last_logits(runner, tokens[:-1])
    own = Segment(tokens[-1:], LENGTH - 1, tuple(range(pages_for(LENGTH))), asks=1)
    others = [
        Segment(ids(n, seed=n), 0, tuple(range(first, first + pages_for(n))), asks=1)
        for n, first in ((1, 10), (5, 11), (150, 20))
    ]

    together = runner.forward(Batch((*others[:2], own, others[2]))).numpy()

    assert_same_bits(expected_logits(family, "int8"), together[2])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 128, 159])
@pytest.mark.parametrize("family", ["mistral", "gemma3", "gpt2", "qwen2"])
def test_a_cached_prefix_of_any_length_gives_the_same_bits(family: str, length: int) -> None:
    """Whole pages shared, the tail copied into another page, as the prefix tree does."""
    tokens = ids(LENGTH)
    runner = native_runner(checkpoint_of(family))
    last_logits(runner, tokens[:length])
    whole, tail = divmod(length, PAGE_SIZE)
    table = (*range(whole), *range(30, 30 + pages_for(LENGTH) - whole))
    copies = (PageCopy(whole, 30, tail),) if tail else ()

    logits = runner.forward(Batch((Segment(tokens[length:], length, table, asks=1),), copies)).numpy()[0]

    assert_same_bits(expected_logits(family, "int8"), logits)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("family", ["mistral", "mistral, a window over blocks"])
def test_pages_before_every_window_are_never_read(family: str, kv_type: KvType, threads: int) -> None:
    """NaN in the place of the pages that only rows before could see; no layer of a Mistral sees everything."""
    runner = native_runner(checkpoint_of(family), threads=threads, kv_type=kv_type)
    tokens, width = ids(300), CONFIGS[family].window
    assert width is not None
    expected = last_logits(runner, tokens)
    nan_page = PAGES - 1
    gone = (300 - 1 - (width.width - 1)) // PAGE_SIZE
    copies = tuple(PageCopy(nan_page, page, PAGE_SIZE) for page in range(gone))
    segment = Segment(tokens[-1:], 299, tuple(range(pages_for(300))), asks=1)

    found = runner.forward(Batch((segment,), copies)).numpy()[0]

    assert gone > 3
    assert_same_bits(expected, found)


def test_random_schedules_give_the_same_bits() -> None:
    """Several sequences of a windowed model advance by random chunks in shared steps."""
    draw = random.Random(11)
    prompts = [ids(draw.randint(20, 220), seed=n) for n in range(6)]
    expected = [last_logits(native_runner(checkpoint_of("gemma3")), prompt) for prompt in prompts]
    runner, done = native_runner(checkpoint_of("gemma3"), threads=2), [0] * 6
    while any(count < len(prompt) for count, prompt in zip(done, prompts, strict=True)):
        chosen = [n for n in range(6) if done[n] < len(prompts[n]) and draw.random() < 0.6]
        segments = []
        for n in chosen:
            end = min(len(prompts[n]), done[n] + draw.choice((1, 1, 3, 17, 40)))
            table = tuple(range(8 * n, 8 * n + pages_for(end)))
            segments.append(Segment(prompts[n][done[n] : end], done[n], table, asks=1))
            done[n] = end
        if segments:
            logits = runner.forward(Batch(tuple(segments))).numpy()
        for row, n in enumerate(chosen):
            if done[n] == len(prompts[n]):
                assert_same_bits(expected[n], logits[row])


def test_a_window_as_long_as_the_context_changes_no_bit() -> None:
    windowed = family_checkpoint("mistral", window=SlidingWindow(512))
    plain = family_checkpoint("mistral", window=None)

    assert_same_bits(last_logits(native_runner(plain), ids(150)), last_logits(native_runner(windowed), ids(150)))


def test_heads_wider_than_any_kernel_are_refused() -> None:
    with pytest.raises(ValueError, match="no attention for these heads"):
        NativeOps(family_checkpoint("gemma3", head_width=264).config, 1)


def test_a_width_that_no_linear_layer_has_is_refused() -> None:
    with pytest.raises(ValueError, match="inputs must be a multiple of 32"):
        native_runner(family_checkpoint("gpt2", width=72))


def test_a_window_of_no_position_is_refused() -> None:
    with pytest.raises(ValueError, match="window of no position"):
        native_runner(family_checkpoint("mistral", window=SlidingWindow(0)))
