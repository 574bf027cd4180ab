"""The default model in float32 says what `transformers` says with the same file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from model.tokenizer import Tokenizer
from tests.paged_sequence import PagedSequence
from tests.reference.transformers_model import transformers_model

pytestmark = pytest.mark.slow

NEW_TOKENS = 32
PAGE_COUNT = 40
PROMPTS = {
    "a fact": "The capital of France is",
    "a question": "Question: Why is the sky blue?\nAnswer:",
    "a story": "Once upon a time, in a village between two rivers, there lived a clockmaker who",
    "French": "Il était une fois, dans une petite ville au bord de la mer, un vieux pêcheur qui",
    "Japanese": "種は土の中で雨を待っています。雨が降ると、",
    "Russian": "Однажды утром, когда солнце ещё не взошло,",
    "code": "def fibonacci(n: int) -> int:\n    '''Return the n-th Fibonacci number.'''\n    if n < 2:\n",
    "emoji": "🌱🌧️☀️🌻 means that a seed grows into a flower. 🥚🐣🐥🐓 means that",
    "a long list": " ".join(f"Row {i} of the garden holds {i * i % 97} seeds." for i in range(1, 61)),
    "long code": "\n\n".join(
        f"def times_{i}(value: int) -> int:\n    return {i} * value"
        for i in (3, 14, 15, 92, 65, 35, 89, 79, 32, 38) * 3
    ),
}
LONG = ("a long list", "long code")


@dataclass(frozen=True, slots=True)
class Greedy:
    """Generated ids, and the logits [ids, vocabulary] that each was the greatest of."""

    ids: list[int]
    logits: Tensor


@pytest.fixture(scope="module")
def checkpoint(default_model_path: Path) -> Checkpoint:
    return load_gguf(default_model_path)


@pytest.fixture(scope="module")
def runner(checkpoint: Checkpoint) -> ModelRunner:
    return ModelRunner(TorchOps(checkpoint.config, PAGE_COUNT), checkpoint)


@pytest.fixture(scope="module")
def peer(checkpoint: Checkpoint, default_model_path: Path) -> Any:
    return transformers_model(default_model_path, checkpoint.config.layer_count)


def our_greedy(runner: ModelRunner, prompt_ids: Sequence[int]) -> Greedy:
    sequence = PagedSequence(range(pages_for(len(prompt_ids) + NEW_TOKENS)))
    ids: list[int] = []
    rows = [sequence.feed(runner, prompt_ids)]
    while len(ids) < NEW_TOKENS:
        ids.append(int(rows[-1].argmax()))
        rows.append(sequence.feed(runner, ids[-1:]))
    return Greedy(ids, torch.stack(rows[:-1]))


def peers_greedy(peer: Any, prompt_ids: Sequence[int], count: int) -> Greedy:
    with torch.inference_mode():
        answer = peer.generate(
            torch.tensor([prompt_ids]),
            attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return Greedy(answer.sequences[0, len(prompt_ids) :].tolist(), torch.cat(answer.logits))


def bound_on(logits: Tensor) -> float:
    """How far two float32 computations of these logits may lie apart."""
    return 1e-5 * float(logits.abs().max())


def near_ties(runner: ModelRunner, peer: Any, prompt_ids: Sequence[int]) -> list[int]:
    """Compare logits and tokens one by one; where the peer chose another token, it goes on from ours.

    The places where it did, each only because its two greatest logits lie within the bound.
    """
    ours, places, done = our_greedy(runner, prompt_ids), [], 0
    while done < NEW_TOKENS:
        theirs = peers_greedy(peer, [*prompt_ids, *ours.ids[:done]], NEW_TOKENS - done)
        for token_id, logits, expected in zip(theirs.ids, ours.logits[done:], theirs.logits, strict=True):
            torch.testing.assert_close(logits, expected, rtol=0, atol=bound_on(expected))
            done += 1
            if token_id != ours.ids[done - 1]:
                best, second = expected.topk(2).values.tolist()
                assert best - second <= bound_on(expected)
                places.append(done - 1)
                break
    return places


def test_greedy_texts_and_their_logits_are_those_of_transformers(
    checkpoint: Checkpoint, runner: ModelRunner, peer: Any
) -> None:
    """Token for token, but for at most one near tie in all ten texts."""
    tokenizer = Tokenizer(checkpoint.vocabulary)
    prompts = {name: tokenizer.encode_prompt(prompt) for name, prompt in PROMPTS.items()}

    places = {name: near_ties(runner, peer, prompt_ids) for name, prompt_ids in prompts.items()}

    assert sum(len(found) for found in places.values()) <= 1, places


def test_some_prompts_are_longer_than_500_tokens(checkpoint: Checkpoint) -> None:
    tokenizer = Tokenizer(checkpoint.vocabulary)

    assert [*LONG] == [name for name, prompt in PROMPTS.items() if len(tokenizer.encode_prompt(prompt)) > 500]
