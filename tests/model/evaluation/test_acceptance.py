"""A guess counts where it is the target's own next token."""

from collections.abc import Collection, Sequence

import numpy as np

from model.evaluation.acceptance import Text, acceptance, prompts_of, write_texts
from model.evaluation.agreement import Logits
from model.evaluation.predictors import native_predictor
from model.loading.checkpoint import Checkpoint


class CountsUp:
    """Believes that every token is followed by the next number, up to 8."""

    def logits(self, ids: Sequence[int]) -> Logits:
        return np.eye(10, dtype=np.float32)[[min(token + 1, 8) for token in ids]]

    def greedy(self, prompt: Sequence[int], count: int, ends: Collection[int] = ()) -> tuple[int, ...]:
        return tuple(range(prompt[-1] + 1, prompt[-1] + 1 + count))


def test_tokens_that_were_guessed_are_counted() -> None:
    found = acceptance(CountsUp(), [Text((1, 2), (3, 4, 9)), Text((5,), (7,))])

    assert (4, 2, 0.5) == (found.tokens, found.accepted, found.share)


def test_texts_are_the_targets_own() -> None:
    assert [Text((1, 2), (3, 4)), Text((5,), (6, 7))] == write_texts(CountsUp(), [(1, 2), (5,)], count=2, ends=())


def test_prompts_are_beginnings_of_different_documents() -> None:
    windows = [("a", (1, 2, 3)), ("b", (4, 5, 6)), ("a", (7, 8, 9)), ("c", (1, 1, 1))]

    assert [(1, 2), (4, 5)] == prompts_of(windows, width=2, count=2)


def test_a_model_guesses_all_of_its_own_text(source: Checkpoint) -> None:
    model = native_predictor(source, 64)
    texts = write_texts(model, [tuple(range(3, 20)), tuple(range(30, 50))], count=30, ends=())

    assert 1.0 == acceptance(model, texts).share
