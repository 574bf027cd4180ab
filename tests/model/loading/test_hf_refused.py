"""What would change a model of a folder and is not implemented is refused by name, with what would have to be built."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import ModelFileError
from model.loading.hf_config import read_hf_config
from model.loading.hf_rules import ARCHITECTURES, REFUSED
from model.loading.json_keys import JsonKeys
from tests import hf_configs as published
from tests.hf_folders import write_json


def refusal(folder: Path, config: Any) -> str:
    """What is said of the file, without its path."""
    write_json(folder / "config.json", config)
    with pytest.raises(ModelFileError) as caught:
        read_hf_config(JsonKeys.read(folder / "config.json", 1 << 20))
    assert str(folder / "config.json") in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize(("name", "needs"), REFUSED.items())
def test_other_architectures_say_what_would_have_to_be_built(name: str, needs: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, {**published.SMOLLM2_135M, "architectures": [name]})

    assert f"architectures is {name}, which is not implemented: {needs} would have to be built" in said


def test_an_architecture_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    assert "its decoder would have to be built" in refusal(
        tmp_path, {**published.SMOLLM2_135M, "architectures": ["NewForCausalLM"]}
    )


def test_what_is_supported_is_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, {**published.SMOLLM2_135M, "architectures": ["NewForCausalLM"]})

    assert [] == [name for name in ARCHITECTURES if name not in said]


LLAMA, MISTRAL, QWEN2, QWEN3 = (
    published.SMOLLM2_135M,
    published.MISTRAL_7B_V01,
    published.QWEN2_5_0_5B,
    published.QWEN3_0_6B,
)
GEMMA, GPT2 = published.GEMMA_3_270M, published.GPT_2


@pytest.mark.parametrize(
    ("config", "key", "value", "says"),
    [
        (LLAMA, "attention_bias", True, "biases of its attention would have to be built"),
        (LLAMA, "mlp_bias", True, "biases of its feed-forward layers would have to be built"),
        (LLAMA, "hidden_act", "gelu", "is gelu, which is not implemented: another activation"),
        (LLAMA, "rope_interleaved", True, "rotary positions of neighbouring pairs"),
        (LLAMA, "sliding_window", 512, "is 512, which is not implemented"),
        (LLAMA, "partial_rotary_factor", 0.5, "rotary positions of a part of each head"),
        (LLAMA, "pruned_heads", {"0": [1]}, "layers with fewer heads"),
        (LLAMA, "quantization_config", {"quant_method": "gptq"}, "use the folder of the unquantised model"),
        (LLAMA, "quantization_config", {}, "use the folder of the unquantised model"),
        (LLAMA, "auto_map", {"AutoModel": "m.M"}, "code that comes with the model, which is not run"),
        (LLAMA, "temperature", 0.6, "sampling defaults outside generation_config.json"),
        (LLAMA, "is_encoder_decoder", True, "an encoder would have to be built"),
        (LLAMA, "logit_scale", 0.5, "is not known, and may change what the model computes"),
        (LLAMA, "residual_multiplier", 0.2, "is not known, and may change what the model computes"),
        (LLAMA, "use_sliding_window", True, "is not known, and may change what the model computes"),
        (LLAMA, "model_type", "mistral", "is not llama, which LlamaForCausalLM has"),
        (QWEN2, "use_mrope", True, "rotary positions in three dimensions"),
        (QWEN3, "attention_bias", True, "biases of its attention"),
        (GEMMA, "attn_logit_softcapping", 50.0, "is 50.0, which is not implemented: soft caps of attention scores"),
        (GEMMA, "final_logit_softcapping", 30.0, "soft caps of logits"),
        (GEMMA, "hidden_activation", "silu", "another activation"),
        (GEMMA, "use_bidirectional_attention", True, "attention to later positions"),
        (GPT2, "activation_function", "relu", "another activation"),
        (GPT2, "scale_attn_weights", False, "attention without a scale"),
        (GPT2, "scale_attn_by_inverse_layer_idx", True, "a scale of attention for each layer"),
        (GPT2, "add_cross_attention", True, "attention to another text"),
        (GPT2, "rope_theta", 10000.0, "is not known, and may change what the model computes"),
    ],
)
def test_keys_that_change_the_model_are_refused_by_name(
    config: dict[str, Any], key: str, value: Any, says: str, tmp_path: Path
) -> None:
    said = refusal(tmp_path, {**config, key: value})

    assert said.startswith(f"{key} ")
    assert says in said


@pytest.mark.parametrize(
    ("kind", "scaling"),
    [
        ("linear", {"type": "linear", "factor": 2.0}),
        ("dynamic", {"rope_type": "dynamic", "factor": 2.0}),
        ("yarn", {"rope_type": "yarn", "factor": 4.0}),
        ("longrope", {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
        ("mrope", {"type": "mrope", "mrope_section": [16, 24, 24]}),
    ],
)
@pytest.mark.parametrize("form", ["rope_scaling", "rope_parameters"])
def test_other_scalings_of_positions_are_refused_by_name(
    form: str, kind: str, scaling: dict[str, Any], tmp_path: Path
) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "rope_theta"}

    said = refusal(tmp_path, {**config, form: scaling})

    assert f"{form}.rope_type is {kind}: this scaling would have to be built; llama3's is" == said


LLAMA_3 = published.LLAMA_3_2_1B["rope_scaling"]


@pytest.mark.parametrize(
    ("scaling", "says"),
    [
        ({**LLAMA_3, "type": "default"}, "rope_scaling.type and rope_type differ"),
        ({**LLAMA_3, "attention_factor": 1.5}, "rope_scaling.attention_factor is not known"),
        ({**LLAMA_3, "factor": 0.5}, "rope_scaling.factor is 0.5; allowed are 1 to"),
        ({**LLAMA_3, "high_freq_factor": 1.0}, "rope_scaling.high_freq_factor is not above low_freq_factor"),
        ({"rope_type": "llama3"}, "rope_scaling.low_freq_factor is missing"),
        ({"rope_type": "default", "factor": 2.0}, "rope_scaling.factor is not known beside the scaling default"),
        ({"rope_type": 3}, "rope_scaling.rope_type is not a string"),
        ([8.0], "rope_scaling is not an object"),
    ],
)
def test_a_scaling_that_contradicts_itself_is_refused(scaling: Any, says: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, {**published.LLAMA_3_2_1B, "rope_scaling": scaling}).startswith(says)


def test_both_forms_of_rotary_positions_at_once_are_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})

    assert said.startswith("rope_theta stands beside rope_parameters")


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"rope_type": "default", "rope_theta": 1e6}, "rope_parameters.rope_type is not known: full_attention"),
        (
            {"sliding_attention": {**LLAMA_3, "rope_theta": 1e4}},
            "rope_parameters.sliding_attention has a scaling",
        ),
        (
            {"full_attention": {"rope_type": "linear", "factor": 8.0}},
            "rope_parameters.full_attention.rope_type is linear",
        ),
    ],
)
def test_positions_by_kind_of_layer_are_checked(parameters: Any, says: str, tmp_path: Path) -> None:
    config = {key: value for key, value in GEMMA.items() if not key.startswith("rope_")}

    assert refusal(tmp_path, {**config, "rope_parameters": parameters}).startswith(says)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {**QWEN2, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2},
            "max_window_layers sets windows in another",
        ),
        ({**GEMMA, "layer_types": GEMMA["layer_types"][::-1]}, "layer_types sets windows in another order"),
        ({**GEMMA, "layer_types": ["full_attention"]}, "layer_types has 1 entries for 18 layers"),
        ({**QWEN3, "layer_types": ["chunked_attention"] * 28}, "layer_types names a kind of attention"),
        ({**QWEN3, "layer_types": [1] * 28}, "layer_types names a kind of attention"),
        ({**QWEN3, "layer_types": ["sliding_attention"] * 28}, "layer_types names layers with a window, and no width"),
        ({**MISTRAL, "layer_types": "full_attention"}, "layer_types is not a list"),
    ],
)
def test_windows_in_another_order_are_refused(config: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, config).startswith(says)


BAD_NUMBERS = [-1, 0, 1 << 60, 10**400, True, "12", 12.5, [], {}]


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=str)
@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "vocab_size",
    ],
)
def test_numbers_of_the_wrong_kind_or_size_are_refused_by_key(key: str, value: Any, tmp_path: Path) -> None:
    assert re.match(rf"{key} (is|which)", refusal(tmp_path, {**LLAMA, key: value}))


@pytest.mark.parametrize("key", ["architectures", "model_type", "hidden_size", "vocab_size", "num_hidden_layers"])
def test_keys_that_must_be_there_are_missed_by_name(key: str, tmp_path: Path) -> None:
    config = {name: value for name, value in LLAMA.items() if name != key}

    assert f"{key} is missing" == refusal(tmp_path, config)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "num_attention_heads is 7, which does not divide"),
        ({"num_key_value_heads": 4}, "num_key_value_heads is 4, which does not divide 9 heads"),
        ({"head_dim": 63}, "head_dim is 63; rotary positions need an even width"),
        ({"architectures": []}, "architectures is not a list of one name"),
        ({"architectures": ["LlamaForCausalLM", "LlamaModel"]}, "architectures is not a list of one name"),
        ({"architectures": "LlamaForCausalLM"}, "architectures is not a list"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is not true or false"),
        ({"bad\nkey": 1}, "'bad\\nkey' is not known"),
    ],
)
def test_configurations_that_cannot_be_are_refused(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, {**LLAMA, **changed}).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('{"a": NaN}', "NaN is no finite number"),
        ('{"a": 1e999}', "is no finite number"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nests too deeply"),
        ('{"a": "' + "x" * (1 << 20) + '"}', "more than the 1048576 that are allowed"),
    ],
    ids=["empty", "list", "twice", "nan", "infinite", "surrogate", "deep", "long"],
)
def test_what_is_no_plain_json_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(ModelFileError, match=says):
        JsonKeys.read(tmp_path / "config.json", 1 << 20)


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    3,
    10**400,
    0.5,
    1e308,
    "",
    "silu",
    "\n" * 300,
    [],
    [1],
    ["x"] * 300,
    {},
    {"a": {}},
)


@pytest.mark.parametrize(
    "config",
    [LLAMA, published.LLAMA_3_2_1B, MISTRAL, QWEN2, QWEN3, GEMMA, GPT2],
    ids=lambda config: config["model_type"],
)
def test_no_value_of_any_key_does_more_than_be_refused(config: dict[str, Any], tmp_path: Path) -> None:
    """What is not refused keeps the rules of a configuration."""
    write_json(tmp_path / "config.json", {})
    file = JsonKeys.read(tmp_path / "config.json", 1 << 20).file
    more = ("layer_types", "rope_parameters", "rope_scaling", "sliding_window", "use_sliding_window", "n_inner")
    for key, value in product((*config, *more), ODD_VALUES):
        said = _said(JsonKeys(file, {**config, key: value}))
        assert "\n" not in said
        assert len(said) < 500


def _said(keys: JsonKeys) -> str:
    """Why a configuration is refused; nothing when it is read."""
    try:
        model = read_hf_config(keys).model
    except ModelFileError as error:
        return error.reason
    assert 0 == model.head_count % model.kv_head_count
    assert model.attention_scale > 0
    return ""
