"""Decoders of every family compute what `transformers` computes, from memory and from files."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import ModelConfig, SlidingWindow
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.gguf import load_gguf
from tests.memory_checkpoint import NO_VOCABULARY
from tests.paged_sequence import PagedSequence, float64_runner
from tests.tiny_families import FAMILY_CONFIGS, family_checkpoint, family_hf_model, write_family_gguf

IDS = [(7 * i * i + 3 * i) % 311 for i in range(90)]
"""Longer than three windows."""


def assert_close(expected: Tensor, actual: Tensor) -> None:
    """Within 1e-9 of the largest logit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9 * float(expected.abs().max()))


def logits_of(checkpoint: Checkpoint, piece: int = 1) -> Tensor:
    """Of the last position of each piece of so many positions."""
    return PagedSequence(range(3)).feed_in_pieces(float64_runner(checkpoint, 3), IDS, piece)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_float64_logits_are_those_of_transformers(family: str) -> None:
    with torch.no_grad():
        expected = family_hf_model(family)(torch.tensor([IDS])).logits[0]

    assert_close(expected, logits_of(family_checkpoint(family)))


@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_a_prompt_in_pieces_gives_the_logits_of_the_whole(family: str) -> None:
    one_by_one, sevens, whole = (logits_of(family_checkpoint(family), piece) for piece in (1, 7, len(IDS)))

    assert_close(one_by_one[6::7], sevens[:-1])
    assert_close(one_by_one[-1:], whole)


@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_a_file_holds_the_configuration_that_was_written(family: str, tmp_path: Path) -> None:
    found = load_gguf(write_family_gguf(tmp_path / "m.gguf", family)).config

    assert as_a_file_holds_it(FAMILY_CONFIGS[family]) == found


@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_a_file_holds_the_weights_that_were_written(family: str, tmp_path: Path) -> None:
    loaded = load_gguf(write_family_gguf(tmp_path / "m.gguf", family))
    loaded = dataclasses.replace(loaded, config=FAMILY_CONFIGS[family], vocabulary=NO_VOCABULARY)

    assert_close(logits_of(family_checkpoint(family)), logits_of(loaded))


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_a_window_of_more_positions_than_kernels_count_is_refused(family: str, tmp_path: Path) -> None:
    window = SlidingWindow(1 << 31, full_every=3 if family == "gemma3" else 0)

    with pytest.raises(ModelFileError, match="sliding_window is 2147483648; allowed are"):
        load_gguf(write_family_gguf(tmp_path / "m.gguf", family, window=window))


def test_factors_of_rotations_are_refused_where_positions_are_learned(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.ones(8, dtype=np.float32)}

    with pytest.raises(
        ModelFileError, match=r"rope_freqs.weight is not implemented: the model's positions are learned"
    ):
        load_gguf(write_family_gguf(tmp_path / "m.gguf", "gpt2", more=factors))


def as_a_file_holds_it(config: ModelConfig) -> ModelConfig:
    scale = config.query_scale
    return dataclasses.replace(config, query_scale=scale and float(torch.tensor(scale, dtype=torch.float32)))
