"""Beam search equals that of `transformers`, the one other implementation with the same definition.

It agrees with `early_stopping="never"`, whose bound is the same, and where the length penalty is not below zero.
"""

from dataclasses import replace
from typing import Any

import pytest

from service.request import Finished
from service.settings import Settings
from service.startup import load
from tests.bits.questions import searched
from tests.tiny_model import IM_END_ID, TinyShape, tiny_hf_model, write_tiny_gguf

SHAPE = TinyShape()
PROMPTS = ((5, 17, 99, 200, 31), tuple(range(40, 80)))
ENDING = tuple(range(3, 163))
"""Half of the vocabulary ends the text, so that the pool fills while beams are live."""
NEW_TOKENS = 10


@pytest.fixture(scope="module")
def hf_model() -> Any:
    return tiny_hf_model(SHAPE)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=SHAPE)
    return load(Settings.load({}, {"model": str(model), "engine": "torch", "kv_cache_bytes": 1 << 22})).engine


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("width", [2, 5])
def test_the_same_texts_in_the_same_order_with_the_same_scores(
    width: int, alpha: float, ends: bool, hf_model: Any, engine: Any
) -> None:
    reasons = set()
    for prompt in PROMPTS:
        question = searched(
            prompt, NEW_TOKENS, width, length_penalty=alpha, stop_token_ids=ENDING if ends else (), ignore_eos=False
        )
        engine.submit(replace(question, sample_count=width).request("r"), 0.0)
        events = []
        while not engine.is_idle:
            events += engine.step()[0]
        finished = events[-1]
        assert isinstance(finished, Finished)

        expected = transformers_search(hf_model, prompt, width, alpha, (IM_END_ID, *ENDING) if ends else (IM_END_ID,))

        found = [tuple(token.token_id for token in each.tokens) for each in finished.completions]
        assert [ids for ids, _ in expected] == found
        assert [score for _, score in expected] == pytest.approx(
            [each.score for each in finished.completions], abs=1e-3
        )
        reasons |= {each.finish_reason for each in finished.completions}
    assert ends == ("stop" in reasons)


def transformers_search(
    model: Any, prompt: tuple[int, ...], width: int, alpha: float, ending: tuple[int, ...]
) -> list[tuple[tuple[int, ...], float]]:
    """Each returned sequence up to the token that ends it, and its score."""
    import torch

    pad = 0
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        early_stopping="never",
        length_penalty=alpha,
        eos_token_id=list(ending),
        pad_token_id=pad,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = []
    for row, score in zip(output.sequences.tolist(), output.sequences_scores.tolist(), strict=True):
        generated = row[len(prompt) :]
        end = next((place for place, token in enumerate(generated, start=1) if token in ending), len(generated))
        found.append((tuple(generated[:end]), score))
    return found
