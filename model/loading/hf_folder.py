"""A Hugging Face folder as a `Checkpoint`: configuration, vocabulary and weights, each checked first.

- `config.json` says what is computed (`hf_config.py`), `generation_config.json` how texts are drawn and end;
- `model.safetensors`, or shards and their index, hold the weights (`hf_shards.py`, `hf_weights.py`);
- `tokenizer.json` and `tokenizer_config.json` say how text becomes tokens, and with a template how chats do.

Knows no op sets. Weights stay in their files until an op set reads them. Always: the tensors are exactly those of the
architecture, in their shapes, finite; anything that could change the model and is not implemented is refused by name;
nothing of the folder is run; every failure is a ModelFileError.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from model.loading.checkpoint import Checkpoint, GenerationDefaults
from model.loading.hf_config import read_hf_config
from model.loading.hf_shards import Shards, checked_hash, open_shards
from model.loading.hf_text import (
    TEMPLATE,
    TEMPLATE_JSON,
    read_ends,
    read_generation_defaults,
    read_template,
)
from model.loading.hf_weights import read_weights
from model.loading.json_keys import JsonKeys
from model.loading.model_file import ModelFile
from model.loading.tokenizer_json import SETTINGS, SPECIAL_TOKENS, TOKENIZER, read_tokenizer_json

CONFIG = "config.json"
GENERATION = "generation_config.json"
MAX_CONFIG_BYTES = 1 << 20
_TEXT_FILES = (CONFIG, GENERATION, TOKENIZER, SETTINGS, SPECIAL_TOKENS, TEMPLATE, TEMPLATE_JSON)
_HUB_CACHE = "models--"


def load_hf_folder(folder: Path) -> Checkpoint:
    """Check the whole folder and describe it. Reads every weight once, and keeps none. Raises ModelFileError."""
    keys = JsonKeys.read(folder / CONFIG, MAX_CONFIG_BYTES)
    config = read_hf_config(keys)
    shards = open_shards(folder)
    weights = read_weights(shards, config)
    vocabulary = read_tokenizer_json(folder, config.model.vocabulary_size)
    ends = vocabulary.eos_token_ids | read_ends(keys, config.model.vocabulary_size)
    defaults = GenerationDefaults()
    if os.path.lexists(folder / GENERATION):
        generation = JsonKeys.read(folder / GENERATION, MAX_CONFIG_BYTES)
        defaults = read_generation_defaults(generation)
        ends |= read_ends(generation, config.model.vocabulary_size)
    template = read_template(folder)
    return Checkpoint(
        name=folder_name(folder),
        sha256=_hash(folder, shards, weights.published),
        config=config.model,
        tensors=weights.tensors,
        vocabulary=replace(vocabulary, eos_token_ids=ends),
        chat_template=template,
        defaults=defaults,
    )


def folder_name(folder: Path) -> str:
    """What the model is called: as its folder, or in the cache of the hub's own tools as it was published."""
    path = Path(os.path.abspath(folder))
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith(_HUB_CACHE):
        name = path.parent.parent.name.rpartition("--")[2]
    else:
        name = path.name
    return name.encode(errors="replace").decode() or "model"


def _hash(folder: Path, shards: Shards, published: frozenset[str]) -> str:
    """The hash of a list of the files that matter, each with its own; in hexadecimal.

    Raises ModelFileError for a weight that is not finite.
    """
    hashes = {name: ModelFile(folder / name).sha256() for name in _TEXT_FILES if os.path.lexists(folder / name)}
    if shards.index is not None:
        hashes[shards.index.path.name] = shards.index.sha256()
    for shard in shards.files:
        hashes[shard.file.path.name] = checked_hash(shard, published.__contains__)
    return hash_of_files(hashes)


def hash_of_files(hashes: Mapping[str, str]) -> str:
    """By file name, sorted: what sets two models apart, wherever their folders lie."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
