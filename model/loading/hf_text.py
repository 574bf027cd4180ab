"""What a Hugging Face folder says beside its weights and its vocabulary: sampling defaults, ends and chat template.

Knows no tokenizer. Always: nothing here can change what a model computes; what it recommends and nothing applies is
named in `GenerationDefaults.not_applied`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.loading.checkpoint import MAX_TEMPLATE_BYTES, GenerationDefaults
from model.loading.hf_rules import is_same
from model.loading.json_keys import JsonKeys, label, read_small, shown_value
from model.loading.model_file import ModelFile
from model.loading.tokenizer_json import MAX_SETTINGS_BYTES, SETTINGS

TEMPLATE = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
MAX_ENDS = 64

_READ = frozenset(("do_sample", "eos_token_id", "min_p", "temperature", "top_k", "top_p"))
_INERT = frozenset(
    (
        "_from_model_config",
        "bos_token_id",
        "cache_implementation",
        "decoder_start_token_id",
        "max_length",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "return_dict_in_generate",
        "transformers_version",
        "trust_remote_code",
        "use_cache",
    )
)
"""Of where it came from, how others run it, what they return, and where text begins."""
_NEUTRAL: Mapping[str, Any] = {
    "diversity_penalty": 0,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "length_penalty": 1,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "repetition_penalty": 1,
    "typical_p": 1,
}
"""Rules that are not applied, with the value at which they do nothing."""


def read_generation_defaults(keys: JsonKeys) -> GenerationDefaults:
    """What `generation_config.json` recommends; values that it leaves to `transformers` stay unnamed.

    With `do_sample` false `transformers` takes the likeliest token whatever else is said, so the temperature is 0.
    """
    given = [
        f"{label(key)} {shown_value(keys.value(key))}"
        for key in keys
        if key in keys and key not in _READ | _INERT and not is_same(keys.value(key), _NEUTRAL.get(key))
    ]

    def number(key: str, least: float, most: float) -> float | None:
        return keys.number(key, least, most) if key in keys else None

    temperature = number("temperature", 0, 2)
    top_k = keys.integer("top_k", 0, 1 << 31) if "top_k" in keys else None
    top_p, min_p = number("top_p", 1e-6, 1), number("min_p", 0, 1)
    if not keys.flag("do_sample", default=True):
        return GenerationDefaults(temperature=0.0, not_applied=tuple(given))
    return GenerationDefaults(temperature, top_k, top_p, min_p, tuple(given))


def read_ends(keys: JsonKeys, vocabulary_size: int) -> frozenset[int]:
    """The ids that `eos_token_id` names: one, or a list, or none."""
    stated = keys.value("eos_token_id")
    ends = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if not all(type(each) is int and 0 <= each < vocabulary_size for each in ends) or len(ends) > MAX_ENDS:
        keys.refuse(
            "eos_token_id", f"is not one id, or a list of at most {MAX_ENDS} ids, from 0 to {vocabulary_size - 1}"
        )
    return frozenset(ends)


def read_template(folder: Path) -> str | None:
    """The chat template: the file of its own, else what the tokenizer's configuration says, else that of processors."""
    if os.path.lexists(folder / TEMPLATE):
        file = ModelFile(folder / TEMPLATE)
        try:
            return read_small(file, MAX_TEMPLATE_BYTES).decode()
        except UnicodeDecodeError as error:
            raise file.error("not valid UTF-8", error.start) from None
    for name in (SETTINGS, TEMPLATE_JSON):
        if os.path.lexists(folder / name):
            template = _stated_template(JsonKeys.read(folder / name, MAX_SETTINGS_BYTES))
            if template is not None:
                return template
    return None


def _stated_template(keys: JsonKeys) -> str | None:
    """A string, or of a list of named ones the one named "default"."""
    key = "chat_template"
    if key not in keys:
        return None
    if isinstance(keys.value(key), str):
        return keys.text(key, MAX_TEMPLATE_BYTES)
    named = [JsonKeys(keys.file, each, f"{key}.") for each in keys.items(key) if isinstance(each, dict)]
    if len(named) != len(keys.items(key)):
        keys.refuse(key, "is not a string or a list of objects")
    defaults = [each for each in named if each.value("name") == "default"]
    if len(defaults) != 1:
        keys.refuse(key, f"names {len(defaults)} templates 'default'; it must be one")
    return defaults[0].text("template", MAX_TEMPLATE_BYTES)
