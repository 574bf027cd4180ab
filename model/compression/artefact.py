"""A compressed model as a folder: what it is, and how it becomes a `Checkpoint`.

- `tane.json` says what the folder holds: name, recipe, source, configuration, tensors, and hashes of the other files;
- `model.safetensors` holds the weights (`stored.py`);
- `vocabulary.gguf` holds configuration, vocabulary, chat template and defaults, and no weights.

Knows no op sets and no recipes. Always: the folder needs nothing beside it; the other files are those that `tane.json`
names by hash; the tensors are exactly those of the architecture, finite; every failure is a ModelFileError.
"""

import dataclasses
from pathlib import Path
from typing import Any

from model.compression.stored import StoredWeights
from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint
from model.loading.cursor import shown
from model.loading.gguf import Description, load_description
from model.loading.gguf_vocabulary import MAX_NAME_BYTES
from model.loading.json_keys import read_json
from model.loading.model_file import ModelFile
from model.loading.safetensors import read_safetensors
from model.loading.shapes import decoder_shapes
from model.loading.tensor import StoredTensor

MANIFEST = "tane.json"
WEIGHTS = "model.safetensors"
VOCABULARY = "vocabulary.gguf"
FORMAT = "tane-compressed"
VERSION = 1
MAX_MANIFEST_BYTES = 4 << 20
_RARE = {"window", "query_scale", "embedding_scale"}
FIELDS = {"format", "version", "name", "recipe", "source", "config", "files", "tensors"}


def load_artefact(folder: Path) -> Checkpoint:
    """Check the whole folder and describe it; weights stay in it. Raises ModelFileError."""
    file = ModelFile(folder / MANIFEST)
    manifest = read_manifest(file)
    described, said = load_description(folder / VOCABULARY)
    source = read_safetensors(folder / WEIGHTS)
    for part in (described, source.file):
        _check_hash(file, manifest["files"], part)
    _check_config(file, manifest["config"], said)
    return Checkpoint(
        name=manifest["name"],
        sha256=file.sha256(),
        config=said.config,
        tensors=_tensors(file, manifest["tensors"], StoredWeights(source), said),
        vocabulary=said.vocabulary,
        chat_template=said.chat_template,
        defaults=said.defaults,
        recipe=manifest["recipe"],
    )


def read_manifest(file: ModelFile) -> dict[str, Any]:
    """What the folder says that it holds, before any of it is looked at. Raises ModelFileError."""
    manifest = read_json(file, MAX_MANIFEST_BYTES)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise file.error(f"not the description of a compressed model: its format is not {FORMAT!r}")
    if manifest.get("version") != VERSION or type(manifest["version"]) is not int:
        raise file.error(f"version {shown(str(manifest.get('version')))} is not supported; version {VERSION} is")
    _check_fields(file, manifest)
    return manifest


def _check_fields(file: ModelFile, manifest: dict[str, Any]) -> None:
    if manifest.keys() != FIELDS:
        raise file.error(f"does not have exactly the fields {', '.join(sorted(FIELDS))}")
    for name in ("recipe", "source", "config", "files", "tensors"):
        if not isinstance(manifest[name], dict):
            raise file.error(f"{name} is not an object")
    try:
        check_name(manifest["name"])
    except ValueError as error:
        raise file.error(str(error)) from None


def check_name(name: object) -> None:
    """Raises ValueError for what no compressed model can be called."""
    try:
        is_name = isinstance(name, str) and 1 <= len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(f"name is not text of 1 to {MAX_NAME_BYTES} bytes")


def _check_hash(file: ModelFile, files: dict[str, Any], part: ModelFile) -> None:
    stated = files.get(part.path.name)
    if not isinstance(stated, dict) or not isinstance(stated.get("sha256"), str):
        raise file.error(f"files names no hash of {part.path.name}")
    if stated["sha256"] != part.sha256():
        raise part.error(f"its hash is not the one that {MANIFEST} names: one of the two was changed")


def config_values(config: ModelConfig) -> dict[str, Any]:
    """The configuration as plain values for `tane.json`; what few families have is left out of others."""
    rare = {each.name: each.default for each in dataclasses.fields(config) if each.name in _RARE}
    values = dataclasses.asdict(config)
    return {name: value for name, value in values.items() if name not in rare or value != rare[name]}


def _check_config(file: ModelFile, stated: dict[str, Any], said: Description) -> None:
    values = config_values(said.config)
    for name in stated.keys() - values.keys():
        raise file.error(f"config.{shown(name)} is none that {VOCABULARY} says")
    for name, value in values.items():
        if name not in stated or stated[name] != value:
            raise file.error(f"config.{name} is {shown(str(stated.get(name)))}, and {VOCABULARY} says {value}")


def _tensors(
    file: ModelFile, described: dict[str, Any], weights: StoredWeights, said: Description
) -> dict[str, StoredTensor]:
    shapes = decoder_shapes(said.config)
    for name in described:
        if name not in shapes:
            raise file.error(f"tensor {shown(name)} is not implemented: no such model has it")
    for name in shapes:
        if name != "head" and name not in described:
            raise file.error(f"tensor {name} is missing")
    tensors = {name: weights.tensor(name, described[name], shapes[name]) for name in shapes if name in described}
    weights.check_all_claimed()
    return tensors
