"""Writes a compressed model's folder tensor by tensor, so that an interrupted run goes on where it stopped.

Knows no recipes beside their words. Always: the folder is whole or absent; until `finish` everything lies in a
folder of the same name with `.partial` behind it, in which each tensor is whole or absent too.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from model.compression.artefact import FORMAT, MANIFEST, VERSION, VOCABULARY, WEIGHTS, config_values
from model.compression.stored import Described, StoredWeights, Weights, describe
from model.config import ModelConfig
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.durable import sync_folder
from model.loading.gguf_file import as_a_file_holds, write_gguf_file
from model.loading.model_file import ModelFile
from model.loading.safetensors import Block, Entry, Safetensors, parsed_json, read_safetensors, write_safetensors
from model.loading.shapes import decoder_shapes
from model.loading.tensor import StoredTensor

PARTIAL = ".partial"
_PLAN = "plan.json"
_NOTE = ".note.json"
_DESCRIPTION = "tensor"
"""Key of a part's metadata that describes its tensor."""


class ArtefactWriter:
    """One folder in the making."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], source: Checkpoint) -> None:
        """Begin, or go on with what an earlier writer of the same recipe and source left.

        Args:
            recipe: plain values that JSON holds.
            source: the model that is compressed.

        Raises:
            ModelFileError: when the folder is there already, or another recipe's unfinished one is in its place.
        """
        self.folder = folder
        self.partial = folder.with_name(folder.name + PARTIAL)
        self._recipe = dict(recipe)
        self._source = source
        check_absent(folder)
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            self._claim()
        except OSError as error:
            raise ModelFileError(f"cannot be written: {error.strerror}", path=self.partial) from error

    def done(self) -> frozenset[str]:
        """The tensors that are written."""
        return frozenset(path.stem for path in self.partial.glob("*.safetensors"))

    def put(self, name: str, weights: Weights) -> None:
        """Write a tensor, in place of an earlier one of its name. Raises OSError."""
        described = describe(name, weights)
        working = self.partial / f"{name}.working"
        working.unlink(missing_ok=True)
        write_safetensors(working, described.blocks, {_DESCRIPTION: json.dumps(described.description)})
        working.replace(self._part(name))

    def tensor(self, name: str) -> StoredTensor:
        """A tensor that was written, as a loaded model will have it. Raises ModelFileError."""
        part = read_safetensors(self._part(name))
        description = _description(part)
        return StoredWeights(part).tensor(name, description, tuple(description["shape"]))

    def stored_size(self, name: str) -> tuple[int, int]:
        """Weights of a tensor that was written, and the bytes of its entries, as its file's head says.

        Raises ModelFileError.
        """
        part = read_safetensors(self._part(name))
        return prod(_description(part)["shape"]), sum(entry.byte_count for entry in part.entries.values())

    def put_note(self, name: str, values: Mapping[str, Any]) -> None:
        """Keep plain values beside the tensors until the folder is finished. Raises OSError."""
        _replace_text(self.partial / f"{name}{_NOTE}", _as_json(values))

    def note(self, name: str) -> dict[str, Any] | None:
        """What was kept under this name; None when nothing was. Raises ModelFileError."""
        path = self.partial / f"{name}{_NOTE}"
        if not path.exists():
            return None
        try:
            values = parsed_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelFileError(f"cannot be read: {error}", path=path) from error
        if not isinstance(values, dict):
            raise ModelFileError("is not an object", path=path)
        return values

    def finish(self, config: ModelConfig, name: str, report: Mapping[str, Any] | None = None) -> Path:
        """Put the tensors together; the folder then has its own name.

        Args:
            config: of the compressed model, which may be smaller than its source.
            report: figures that are kept as `report` within the recipe.

        Raises:
            ModelFileError: when a tensor is missing or was never part of such a model.
            OSError: when the folder cannot be written.
        """
        parts = self._parts(config)
        whole = dataclasses.replace(self._source, name=name, config=as_a_file_holds(config))
        for leftover in (WEIGHTS, VOCABULARY, MANIFEST):
            (self.partial / f"{leftover}.new").unlink(missing_ok=True)
        blocks = {entry: block for part in parts.values() for entry, block in part.blocks.items()}
        write_safetensors(self.partial / f"{WEIGHTS}.new", blocks, {"format": FORMAT})
        write_gguf_file(self.partial / f"{VOCABULARY}.new", whole, {})
        manifest = self._manifest(whole, {name: part.description for name, part in parts.items()}, report)
        _write_text(self.partial / f"{MANIFEST}.new", manifest)
        self._publish()
        return self.folder

    def _claim(self) -> None:
        plan = _as_json({"recipe": self._recipe, "source": self._source.sha256})
        path = self.partial / _PLAN
        if not path.exists():
            _replace_text(path, plan)
        elif path.read_text(encoding="utf-8") != plan:
            raise ModelFileError("holds the unfinished work of another recipe or model; remove it", path=self.partial)

    def _part(self, name: str) -> Path:
        return self.partial / f"{name}.safetensors"

    def _parts(self, config: ModelConfig) -> dict[str, Described]:
        """Every part checked, and none kept open: a model may have more of them than a process may open files."""
        shapes = decoder_shapes(config)
        done = self.done()
        for name in sorted(done - shapes.keys()):
            raise ModelFileError(f"tensor {name} is no part of the model", path=self.partial)
        parts = {}
        for name, shape in shapes.items():
            if name not in done:
                if name == "head":
                    continue
                raise ModelFileError(f"tensor {name} was not written", path=self.partial)
            part = read_safetensors(self._part(name))
            description = _description(part)
            StoredWeights(part).tensor(name, description, shape)
            parts[name] = Described(
                description, {entry: _block(self._part(name), part.entries[entry]) for entry in part.entries}
            )
        return parts

    def _manifest(self, whole: Checkpoint, tensors: Mapping[str, Any], report: Mapping[str, Any] | None) -> str:
        files = {name: ModelFile(self.partial / f"{name}.new") for name in (WEIGHTS, VOCABULARY)}
        return _as_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "name": whole.name,
                "recipe": self._recipe if report is None else {**self._recipe, "report": dict(report)},
                "source": {"name": self._source.name, "sha256": self._source.sha256},
                "config": config_values(whole.config),
                "files": {name: {"bytes": file.size, "sha256": file.sha256()} for name, file in files.items()},
                "tensors": tensors,
            }
        )

    def _publish(self) -> None:
        """The parts go only when the whole is on the disk; a `done` folder is finished by calling `finish` again."""
        finished = self.folder.with_name(self.folder.name + ".finished")
        shutil.rmtree(finished, ignore_errors=True)
        finished.mkdir()
        for name in (WEIGHTS, VOCABULARY, MANIFEST):
            (self.partial / f"{name}.new").replace(finished / name)
        sync_folder(finished)
        finished.rename(self.folder)
        sync_folder(self.folder.parent)
        shutil.rmtree(self.partial)


def check_absent(folder: Path) -> None:
    """Raises ModelFileError when something of that name is there, or nothing can be."""
    try:
        is_there = folder.exists()
    except OSError as error:
        raise ModelFileError(f"cannot be written: {error.strerror}", path=folder) from error
    if is_there:
        raise ModelFileError("is there already; choose another name or remove it", path=folder)


def _description(part: Safetensors) -> dict[str, Any]:
    try:
        description = parsed_json(part.metadata.get(_DESCRIPTION, "").encode())
    except ValueError:
        description = None
    if not isinstance(description, dict) or not isinstance(description.get("shape"), list):
        raise part.file.error("does not say what its tensor is")
    return description


def _block(path: Path, entry: Entry) -> Block:
    return Block(entry.dtype, entry.shape, lambda: read_safetensors(path).read(entry.name))


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _write_text(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as sink:
        sink.write(text)
        sink.flush()
        os.fsync(sink.fileno())


def _replace_text(path: Path, text: str) -> None:
    """The whole text or none of it is there afterwards."""
    working = path.with_name(f"{path.name}.working")
    working.unlink(missing_ok=True)
    _write_text(working, text)
    working.replace(path)
