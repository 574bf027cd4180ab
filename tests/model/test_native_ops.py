"""The native op set: close to the oracle, and the same bits whatever shares the step."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.batch import Batch, PageCopy, Segment
from model.kv_cache import PAGE_SIZE, pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.native import _native
from model.ops.native_ops import Isa, KvType, NativeOps
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from tests.tiny_model import FORMAT_NAMES, FormatName, TinyShape, write_tiny_gguf

PAGES = 64
SHAPE = TinyShape(context=1024, layers=2)
GROUPED = TinyShape(context=1024, layers=2, width=96, heads=6, kv_heads=2, head_width=16, feed_forward=160)
SHAPES = {"grouped": GROUPED, "one-kv-head": TinyShape(heads=4, kv_heads=1, context=1024), "plain": SHAPE}
BOUNDARIES = (1, 31, 32, 33, 64, 65, 127, 128, 129, 300)
Logits = NDArray[np.float32]


def available_isas() -> list[Isa]:
    isas: list[Isa] = ["scalar", "avx2", "avx512"]
    return isas[: _native.best_isa() + 1]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return load_gguf(write_tiny_gguf(path, shape=GROUPED, format="Q4_1"))


def make_runner(
    checkpoint: Checkpoint, *, threads: int = 1, isa: Isa = "auto", kv_type: KvType = "int8"
) -> ModelRunner:
    ops = NativeOps(checkpoint.config, PAGES, threads=threads, isa=isa, kv_type=kv_type)
    runner = ModelRunner(ops, checkpoint)
    ops.poison_pages()
    return runner


def ids(count: int, seed: int = 0) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(3, 300) for _ in range(count))


def pages(count: int, first: int = 0) -> tuple[int, ...]:
    return tuple(range(first, first + pages_for(count)))


def run(runner: ModelRunner, *segments: Segment, copies: tuple[PageCopy, ...] = ()) -> Logits:
    logits: Logits = runner.forward(Batch(segments, copies)).numpy()
    return logits


def last_logits(runner: ModelRunner, tokens: Sequence[int], *, chunk: int = 1 << 20) -> Logits:
    """Logits of the last token, the prompt cut into chunks."""
    table = pages(len(tokens))
    logits: Logits = np.empty((1, 0), dtype=np.float32)
    for start in range(0, len(tokens), chunk):
        piece = tuple(tokens[start : start + chunk])
        used = table[: pages_for(start + len(piece))]
        logits = run(runner, Segment(piece, start, used, asks=int(start + len(piece) == len(tokens))))
    last: Logits = logits[0]
    return last


def assert_same_bits(left: Logits, right: Logits) -> None:
    assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("format", FORMAT_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_close_to_the_oracles(tmp_path: Path, shape: str, format: FormatName) -> None:
    """Activations of 8 bits in groups of 32 and keys and values of 8 bits per head, against float64."""
    checkpoint = load_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", shape=SHAPES[shape], format=format))
    oracle = ModelRunner(TorchOps(checkpoint.config, PAGES, dtype=torch.float64), checkpoint)
    tokens = ids(70)
    expected = oracle.forward(Batch((Segment(tokens, 0, pages(70), asks=1),))).numpy()[0]

    logits = last_logits(make_runner(checkpoint), tokens)

    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    assert error < 0.08


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("kv_type", ["int8", "float16"])
def test_every_instruction_set_and_thread_count_gives_the_scalar_bits(
    checkpoint: Checkpoint, isa: Isa, kv_type: KvType
) -> None:
    tokens = ids(150)
    expected = last_logits(make_runner(checkpoint, isa="scalar", kv_type=kv_type), tokens)

    for threads in (1, 2, 4):
        assert_same_bits(
            last_logits(make_runner(checkpoint, threads=threads, isa=isa, kv_type=kv_type), tokens), expected
        )


@pytest.mark.parametrize("chunk", [1, 7, 32, 64, 512])
@pytest.mark.parametrize("length", BOUNDARIES)
def test_a_prompt_gives_the_same_bits_however_it_is_cut(checkpoint: Checkpoint, length: int, chunk: int) -> None:
    tokens = ids(length)
    expected = last_logits(make_runner(checkpoint), tokens)

    assert_same_bits(last_logits(make_runner(checkpoint, threads=2), tokens, chunk=chunk), expected)


def test_a_row_gives_the_same_bits_among_neighbours(checkpoint: Checkpoint) -> None:
    """Decode rows and prompt chunks of others, before and after it, in the same step."""
    tokens = ids(200, seed=1)
    alone = make_runner(checkpoint)
    last_logits(alone, tokens[:-1])
    expected = run(alone, Segment(tokens[-1:], 199, pages(200), asks=1))[0]
    crowd = make_runner(checkpoint, threads=2)
    last_logits(crowd, tokens[:-1])
    others = [Segment(ids(n, seed=n), 0, pages(n, first), asks=1) for n, first in ((1, 10), (5, 11), (100, 20))]

    together = run(crowd, *others[:2], Segment(tokens[-1:], 199, pages(200), asks=1), others[2])

    assert_same_bits(together[2], expected)


def test_the_order_of_pages_changes_no_bit(checkpoint: Checkpoint) -> None:
    tokens = ids(140)
    shuffled = tuple(random.Random(3).sample(range(PAGES), pages_for(140)))

    logits = run(make_runner(checkpoint), Segment(tokens, 0, shuffled, asks=1))[0]

    assert_same_bits(logits, last_logits(make_runner(checkpoint), tokens))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65])
def test_a_cached_prefix_of_any_length_gives_the_same_bits(checkpoint: Checkpoint, length: int) -> None:
    """Whole pages shared, the tail copied into another page, as the prefix tree does."""
    tokens = ids(100, seed=length)
    runner = make_runner(checkpoint)
    expected = last_logits(runner, tokens)
    whole, tail = divmod(length, PAGE_SIZE)
    table = (*range(whole), *range(40, 40 + pages_for(100) - whole))
    copies = (PageCopy(whole, 40, tail),) if tail else ()

    logits = run(runner, Segment(tokens[length:], length, table, asks=1), copies=copies)[0]

    assert_same_bits(logits, expected)


def test_copies_happen_in_order(checkpoint: Checkpoint) -> None:
    tokens = ids(20)
    runner = make_runner(checkpoint)
    last_logits(runner, tokens)
    copies = (PageCopy(0, 5, 20), PageCopy(5, 6, 20), PageCopy(9, 5, 32))

    logits = run(runner, Segment(tokens[-1:], 19, (6,), asks=1), copies=copies)[0]

    assert_same_bits(logits, last_logits(make_runner(checkpoint), tokens))


def test_asking_for_more_rows_changes_no_bit(checkpoint: Checkpoint) -> None:
    tokens = ids(90)
    runner = make_runner(checkpoint)
    some = run(runner, Segment(tokens[:40], 0, pages(40), asks=1), Segment(ids(9, 5), 0, (30,), asks=0))
    rest = run(runner, Segment(tokens[40:], 40, pages(90), asks=1))

    assert some.shape == (1, checkpoint.config.vocabulary_size)
    assert_same_bits(rest[0], last_logits(make_runner(checkpoint), tokens))


def test_a_batch_that_asks_for_nothing_has_no_logits(checkpoint: Checkpoint) -> None:
    assert run(make_runner(checkpoint), Segment((5, 6), 0, (0,), asks=0)).shape[0] == 0


def test_random_schedules_give_the_same_bits(checkpoint: Checkpoint) -> None:
    """Several sequences advance by random chunks in shared steps; each ends with the bits that it has alone."""
    draw = random.Random(11)
    prompts = [ids(draw.randint(20, 220), seed=n) for n in range(6)]
    expected = [last_logits(make_runner(checkpoint), prompt) for prompt in prompts]
    runner, done, first = make_runner(checkpoint, threads=2), [0] * 6, [8 * n for n in range(6)]
    ended: dict[int, Logits] = {}
    while len(ended) < 6:
        chosen = [n for n in range(6) if done[n] < len(prompts[n]) and draw.random() < 0.6]
        segments = []
        for n in chosen:
            end = min(len(prompts[n]), done[n] + draw.choice((1, 1, 3, 17, 40)))
            table = pages(end, first[n])
            segments.append(Segment(prompts[n][done[n] : end], done[n], table, asks=int(end == len(prompts[n]))))
            done[n] = end
        if segments:
            logits = run(runner, *segments)
            asking = [n for n, segment in zip(chosen, segments, strict=True) if segment.asks]
            ended.update({n: logits[row] for row, n in enumerate(asking)})

    for n, logits in ended.items():
        assert_same_bits(logits, expected[n])


def test_an_isa_that_the_machine_lacks_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ValueError, match="no instruction set is called"):
        NativeOps(checkpoint.config, 1, isa="sse9")  # type: ignore[arg-type]
