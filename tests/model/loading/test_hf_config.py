"""`config.json` of published models becomes the decoder that they describe."""

from pathlib import Path
from typing import Any

import pytest

from model.config import ModelConfig, RopeScaling, SlidingWindow
from model.loading.hf_config import FolderConfig, read_hf_config
from model.loading.json_keys import JsonKeys
from tests import hf_configs as published
from tests.hf_folders import write_json

LLAMA_3_SCALING = RopeScaling(32.0, 1.0, 4.0, 8192)
GEMMA_WINDOW = SlidingWindow(512, 6, 10_000.0)

EXPECTED: dict[str, tuple[dict[str, Any], ModelConfig, bool]] = {
    "SmolLM2-135M-Instruct": (
        published.SMOLLM2_135M,
        ModelConfig("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100_000.0, 1e-5),
        True,
    ),
    "Llama-3.2-1B": (
        published.LLAMA_3_2_1B,
        ModelConfig("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500_000.0, 1e-5, LLAMA_3_SCALING),
        True,
    ),
    "Mistral-7B-v0.1": (
        published.MISTRAL_7B_V01,
        ModelConfig("llama", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 10_000.0, 1e-5, window=SlidingWindow(4096)),
        False,
    ),
    "Mistral-7B-v0.3": (
        published.MISTRAL_7B_V03,
        ModelConfig("llama", 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1_000_000.0, 1e-5),
        False,
    ),
    "Qwen2.5-0.5B": (
        published.QWEN2_5_0_5B,
        ModelConfig("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1_000_000.0, 1e-6),
        True,
    ),
    "Qwen3-0.6B": (
        published.QWEN3_0_6B,
        ModelConfig("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1_000_000.0, 1e-6),
        True,
    ),
    "gemma-3-1b-it": (
        published.GEMMA_3_1B_IT,
        ModelConfig(
            "gemma3",
            26,
            1152,
            4,
            1,
            256,
            6912,
            262144,
            32768,
            1_000_000.0,
            1e-6,
            window=GEMMA_WINDOW,
            embedding_scale=33.94112396240234375,
        ),
        True,
    ),
    "gemma-3-270m": (
        published.GEMMA_3_270M,
        ModelConfig(
            "gemma3",
            18,
            640,
            4,
            1,
            256,
            2048,
            262144,
            32768,
            1_000_000.0,
            1e-6,
            window=GEMMA_WINDOW,
            embedding_scale=25.298221588134765625,
        ),
        True,
    ),
    "gpt2": (published.GPT_2, ModelConfig("gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, 10_000.0, 1e-5), True),
}


def read(folder: Path, config: dict[str, Any]) -> FolderConfig:
    write_json(folder / "config.json", config)
    return read_hf_config(JsonKeys.read(folder / "config.json", 1 << 20))


@pytest.mark.parametrize(("config", "model", "ties_head"), EXPECTED.values(), ids=EXPECTED)
def test_published_configurations_are_read(
    config: dict[str, Any], model: ModelConfig, ties_head: bool, tmp_path: Path
) -> None:
    assert FolderConfig(model, ties_head) == read(tmp_path, config)


def newer(config: dict[str, Any]) -> dict[str, Any]:
    """The same in the form that transformers 5 writes."""
    older = {key: value for key, value in config.items() if key not in ("rope_theta", "rope_scaling")}
    plain = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    if "rope_local_base_freq" in config:
        local = {"rope_type": "default", "rope_theta": older.pop("rope_local_base_freq")}
        return {**older, "rope_parameters": {"full_attention": plain, "sliding_attention": local}}
    return {**older, "rope_parameters": {**plain, **(config.get("rope_scaling") or {})}}


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "gpt2"])
def test_the_newer_form_of_rotary_positions_says_the_same(name: str, tmp_path: Path) -> None:
    config, model, _ = EXPECTED[name]

    assert model == read(tmp_path, newer(config)).model


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({**published.MISTRAL_7B_V01, "sliding_window": 32768}, None),
        ({**published.QWEN2_5_0_5B, "use_sliding_window": True, "sliding_window": 64}, None),
        (
            {**published.QWEN2_5_0_5B, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0},
            SlidingWindow(64),
        ),
        ({**published.QWEN3_0_6B, "layer_types": ["full_attention"] * 28}, None),
        ({**published.GEMMA_3_1B_IT, "sliding_window_pattern": 1}, None),
        ({**published.GEMMA_3_1B_IT, "sliding_window_pattern": 99}, SlidingWindow(512, 0, 10_000.0)),
        ({**published.GEMMA_3_1B_IT, "sliding_window": 40_000}, SlidingWindow(40_000, 6, 10_000.0)),
    ],
    ids=["whole context", "no layer", "every layer", "all full", "every full", "none full", "another base"],
)
def test_a_window_is_where_it_changes_something(
    config: dict[str, Any], window: SlidingWindow | None, tmp_path: Path
) -> None:
    assert window == read(tmp_path, config).model.window


@pytest.mark.parametrize(
    ("changed", "scale"), [({}, None), ({"query_pre_attn_scalar": 64}, 0.125), ({"head_dim": 64}, 0.0625)]
)
def test_gemma_scales_queries_by_a_number_of_its_own(
    changed: dict[str, Any], scale: float | None, tmp_path: Path
) -> None:
    assert scale == read(tmp_path, {**published.GEMMA_3_270M, **changed}).model.query_scale


def test_gpt2_takes_a_feed_forward_width_of_its_own(tmp_path: Path) -> None:
    assert 1000 == read(tmp_path, {**published.GPT_2, "n_inner": 1000}).model.feed_forward_width


def test_a_llama_without_kv_heads_has_one_for_each_head(tmp_path: Path) -> None:
    config = {key: value for key, value in published.SMOLLM2_135M.items() if key != "num_key_value_heads"}

    assert 9 == read(tmp_path, config).model.kv_head_count


def test_an_absent_head_is_tied_as_its_architecture_says(tmp_path: Path) -> None:
    configs = (published.SMOLLM2_135M, published.GEMMA_3_270M)
    untold = [{key: value for key, value in each.items() if key != "tie_word_embeddings"} for each in configs]

    assert [False, True] == [read(tmp_path, config).ties_head for config in untold]
