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


def bound_on(logits: Tensor) -> float:
    """How far two float32 computations of these logits may lie apart."""
    return 1e-5 * float(logits.abs().max())


def near_ties(ours: Greedy, expected: Tensor) -> list[int]:
    """The places where the peer, after the same ids, would have gone on with another token than ours.

    Each is allowed only because its two greatest logits lie within the bound; logits must lie within it everywhere.
    """
    places = []
    for place, (token_id, logits, theirs) in enumerate(zip(ours.ids, ours.logits, expected, strict=True)):
        torch.testing.assert_close(logits, theirs, rtol=0, atol=bound_on(theirs))
        if token_id != int(theirs.argmax()):
            best, second = theirs.topk(2).values.tolist()
            assert best - second <= bound_on(theirs)
            places.append(place)
    return places


@pytest.mark.timeout(1200)
def test_greedy_texts_and_their_logits_are_those_of_transformers(
    checkpoint: Checkpoint, runner: ModelRunner, peer: Any
) -> None:
    """Token for token, but for at most one near tie in all ten texts."""
    tokenizer, places = Tokenizer(checkpoint.vocabulary), {}

    for name, prompt in PROMPTS.items():
        prompt_ids = tokenizer.encode_prompt(prompt)
        ours = our_greedy(runner, prompt_ids)
        with torch.inference_mode():
            answer = peer(torch.tensor([prompt_ids + ours.ids[:-1]]), logits_to_keep=NEW_TOKENS)
        places[name] = near_ties(ours, answer.logits[0])

    assert sum(len(found) for found in places.values()) <= 1, places


@pytest.mark.parametrize("name", ["a fact", "Japanese", "code"])
def test_a_greedy_text_is_what_transformers_generates(
    checkpoint: Checkpoint, runner: ModelRunner, peer: Any, name: str
) -> None:
    prompt_ids = Tokenizer(checkpoint.vocabulary).encode_prompt(PROMPTS[name])
    inputs = torch.tensor([prompt_ids])

    with torch.inference_mode():
        answer = peer.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=NEW_TOKENS, do_sample=False
        )

    assert answer[0, len(prompt_ids) :].tolist() == our_greedy(runner, prompt_ids).ids


def test_some_prompts_are_longer_than_500_tokens(checkpoint: Checkpoint) -> None:
    tokenizer = Tokenizer(checkpoint.vocabulary)

    assert [*LONG] == [name for name, prompt in PROMPTS.items() if len(tokenizer.encode_prompt(prompt)) > 500]
