"""However tokens arrive, and wherever they lie, logits are those of the slow truth without a cache."""

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from model.batch import Batch, PageCopy, Segment
from model.ops.torch_step import LONG_CONTEXT
from model.runner import ModelRunner
from tests.memory_checkpoint import memory_checkpoint
from tests.paged_sequence import PagedSequence, float64_ops, float64_runner
from tests.reference import forward as reference
from tests.tiny_model import TinyShape

CHECKPOINT = memory_checkpoint(TinyShape(context=4096))
LENGTHS = (65, 1, 130, 32, 64, 33, 31)
PAGE_COUNT = 90


def ids(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(CHECKPOINT.config.vocabulary_size), k=count))


def truth(token_ids: Sequence[int]) -> Tensor:
    """The logits [vocabulary] after the last token."""
    return reference.forward(CHECKPOINT, token_ids)[-1]


def assert_close(expected: Tensor, actual: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def shuffled_pages(seed: int = 0) -> list[int]:
    return random.Random(seed).sample(range(PAGE_COUNT), PAGE_COUNT)


@pytest.fixture
def runner() -> ModelRunner:
    """Pages are NaN wherever nothing was written."""
    return float64_runner(CHECKPOINT, PAGE_COUNT)


@pytest.mark.parametrize("size", [1, 7, 32, 64, 130])
@pytest.mark.parametrize("pages", [list(range(PAGE_COUNT)), shuffled_pages()], ids=["in a row", "shuffled"])
def test_a_prompt_may_come_in_pieces(runner: ModelRunner, size: int, pages: list[int]) -> None:
    token_ids = ids(130)

    logits = PagedSequence(pages[:5]).feed_in_pieces(runner, token_ids, size)

    ends = [min(start + size, 130) - 1 for start in range(0, 130, size)]
    assert_close(reference.forward(CHECKPOINT, token_ids)[ends], logits)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_may_end_anywhere_in_a_page(runner: ModelRunner, length: int) -> None:
    assert_close(truth(ids(length)), PagedSequence(range(5)).feed(runner, ids(length)))


def test_decode_rows_of_many_sequences_share_a_step(runner: ModelRunner) -> None:
    pages = iter(shuffled_pages())
    sequences = [PagedSequence([next(pages) for _ in range(5)]) for _ in LENGTHS]
    for seed, (sequence, length) in enumerate(zip(sequences, LENGTHS, strict=True)):
        sequence.feed(runner, ids(length, seed))

    logits = runner.forward(Batch(tuple(sequence.segment([9]) for sequence in sequences)))

    expected = [truth((*ids(length, seed), 9)) for seed, length in enumerate(LENGTHS)]
    assert_close(torch.stack(expected), logits)


def test_decode_rows_and_chunks_mix_in_any_order(runner: ModelRunner) -> None:
    """A step of two decode rows and three chunks, of which one starts, one goes on and one asks for nothing."""
    pages = shuffled_pages(1)
    sequences = [PagedSequence(pages[5 * i : 5 * i + 5]) for i in range(5)]
    before = [ids(40, 1), (), ids(33, 2), ids(70, 3), ids(64, 4)]
    added = [ids(1, 5), ids(45, 6), ids(31, 7), ids(1, 8), ids(20, 9)]
    for sequence, token_ids in zip(sequences, before, strict=True):
        if token_ids:
            sequence.feed(runner, token_ids)

    segments = [
        sequence.segment(token_ids, asks=int(index != 2))
        for index, (sequence, token_ids) in enumerate(zip(sequences, added, strict=True))
    ]
    logits = runner.forward(Batch(tuple(segments)))

    expected = [truth((*before[index], *added[index])) for index in (0, 1, 3, 4)]
    assert_close(torch.stack(expected), logits)


def test_a_chunk_that_did_not_ask_was_written_all_the_same(runner: ModelRunner) -> None:
    sequence = PagedSequence(range(5))

    nothing = runner.forward(Batch((sequence.segment(ids(50), asks=0),)))
    logits = sequence.feed(runner, [9])

    assert (0, CHECKPOINT.config.vocabulary_size) == tuple(nothing.shape)
    assert_close(truth((*ids(50), 9)), logits)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 64, 99])
def test_a_truncated_sequence_goes_on_another_way(runner: ModelRunner, length: int) -> None:
    """What lies past the cut is overwritten or never read."""
    sequence = PagedSequence(shuffled_pages()[:5])
    sequence.feed(runner, ids(100))
    sequence.length = length

    logits = sequence.feed(runner, ids(20, 1))

    assert_close(truth((*ids(100)[:length], *ids(20, 1))), logits)


@pytest.mark.parametrize("shared", [1, 17, 31, 32])
def test_a_copied_tail_goes_on_apart_from_its_source(runner: ModelRunner, shared: int) -> None:
    """Copy on write: two sequences share a full page, and each goes on in a tail of its own."""
    first, second = PagedSequence([3, 8, 7]), PagedSequence([3, 5, 9])
    first.feed(runner, ids(32 + shared))
    second.length = first.length
    copies = (PageCopy(source=8, target=5, positions=shared),)

    logits = runner.forward(Batch((second.segment([7]), first.segment([9])), copies))

    assert_close(torch.stack([truth((*ids(32 + shared), 7)), truth((*ids(32 + shared), 9))]), logits)


def test_long_and_short_contexts_mix(runner: ModelRunner) -> None:
    """Decode rows on scattered pages and on pages in a row, on both sides of every bound, and a chunk."""
    lengths = [LONG_CONTEXT - 9, LONG_CONTEXT, LONG_CONTEXT + 200, LONG_CONTEXT + 88, 90, 3]
    scattered = random.Random(2).sample(range(65), 65)
    pages = [scattered[:17], scattered[17:40], scattered[40:64], list(range(70, 89)), list(range(66, 69)), [69]]
    sequences = [PagedSequence(own) for own in pages]
    for seed, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        sequence.feed(runner, ids(length, seed))
    added = [(9,), (9,), (9,), (9,), ids(5, 7), (9,)]

    logits = runner.forward(Batch(tuple(sequence.segment(new) for sequence, new in zip(sequences, added, strict=True))))

    expected = [truth((*ids(length, seed), *added[seed])) for seed, length in enumerate(lengths)]
    assert_close(torch.stack(expected), logits)


def test_pages_beyond_the_last_position_are_not_read(runner: ModelRunner) -> None:
    """A sequence may hold pages that it has not reached yet."""
    assert_close(truth(ids(40)), PagedSequence(range(50)).feed(runner, ids(40)))


def test_the_last_position_of_the_context_is_run() -> None:
    shape = TinyShape(context=40)
    runner = float64_runner(memory_checkpoint(shape), 2)

    assert_close(truth(ids(40)), PagedSequence(range(2)).feed(runner, ids(40)))


def segment(*, tokens: int = 1, start: int = 0, pages: tuple[int, ...] = (0, 1)) -> Segment:
    return Segment(tuple(range(tokens)), start, pages, asks=1)


BROKEN = {
    "no segment": Batch(()),
    "no row": Batch((segment(tokens=0),)),
    "a start before the first position": Batch((segment(start=-1),)),
    "a position past the pages": Batch((segment(start=64),)),
    "a chunk that leaves the pages": Batch((segment(tokens=2, start=63),)),
    "no page": Batch((segment(pages=()),)),
    "a page past the last": Batch((segment(pages=(0, PAGE_COUNT)),)),
    "a page before the first": Batch((segment(pages=(-1, 0)),)),
    "a position past the context": Batch((segment(start=4096, pages=tuple(range(PAGE_COUNT)) * 2),)),
    "one page written twice": Batch((segment(start=3), segment(start=9))),
    "a copy from nowhere": Batch((segment(),), (PageCopy(PAGE_COUNT, 1, 3),)),
    "a copy to nowhere": Batch((segment(),), (PageCopy(1, -1, 3),)),
    "a copy of nothing": Batch((segment(),), (PageCopy(1, 2, 0),)),
    "a copy of more than a page": Batch((segment(),), (PageCopy(1, 2, 33),)),
}


@pytest.mark.parametrize("batch", BROKEN.values(), ids=BROKEN)
def test_a_batch_that_breaks_its_rules_is_stopped_before_a_page_is_written(batch: Batch) -> None:
    ops = float64_ops(CHECKPOINT, PAGE_COUNT)
    runner = ModelRunner(ops, CHECKPOINT)

    with pytest.raises(AssertionError):
        runner.forward(batch)

    assert ops.pages.isnan().all()


def test_sequences_may_share_pages_that_neither_writes(runner: ModelRunner) -> None:
    first, second = PagedSequence([0, 1]), PagedSequence([0, 2])
    first.feed(runner, ids(32))
    second.length = 32

    logits = runner.forward(Batch((first.segment([5]), second.segment([6, 7]))))

    assert_close(torch.stack([truth((*ids(32), 5)), truth((*ids(32), 6, 7))]), logits)
