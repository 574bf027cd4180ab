"""Rotary frequencies are scaled as Llama 3 defines it."""

from pathlib import Path

import numpy as np
import pytest

from model.config import ModelConfig, RopeScaling
from model.loading.gguf import load_gguf
from model.rope import frequency_factors
from tests.tiny_model import TinyShape, llama_3_factors, write_tiny_gguf


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    return load_gguf(write_tiny_gguf(tmp_path / "m.gguf", shape=TinyShape(rope_factor=8.0))).config


def test_frequency_factors_are_those_that_llama_3_defines(config: ModelConfig) -> None:
    scaling = RopeScaling(factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_length=8192)

    factors = frequency_factors(config, scaling)

    np.testing.assert_allclose(llama_3_factors(16, 10000.0, 8.0), factors, rtol=1e-12)
    assert 1.0 == factors[0]
    assert 8.0 == factors[-1]


@pytest.mark.slow
def test_frequency_factors_are_those_of_transformers(config: ModelConfig) -> None:
    from tests.tiny_model import tiny_hf_model

    unscaled = tiny_hf_model(TinyShape()).model.rotary_emb.inv_freq.double().numpy()
    scaled = tiny_hf_model(TinyShape(rope_factor=8.0)).model.rotary_emb.inv_freq.double().numpy()

    np.testing.assert_allclose(unscaled / scaled, frequency_factors(config, config.rope_scaling), rtol=1e-6)


def test_without_a_scaling_nothing_is_divided(config: ModelConfig) -> None:
    assert [1.0] * 8 == frequency_factors(config, None).tolist()
