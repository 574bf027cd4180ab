"""Which models are at hand: those of the catalogue, those pulled from the hub, and compressed ones in a folder.

Knows no op sets and loads no model: sizes, headers and records are read, and hashes where that is asked for.
Always: what is listed as ready has every file in its full size; nothing in a file or folder ends the list, it is
listed as damaged.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from model.compression.artefact import MANIFEST, read_manifest
from model.compression.artefact_writer import PARTIAL as COMPRESSED_PARTIAL
from model.compression.artefact_writer import PLAN
from model.loading.catalogue import CATALOGUE, PublishedModel
from model.loading.checkpoint import ModelFileError
from model.loading.gguf_reader import read_header
from model.loading.hf_pull import RECORD, Record, damaged_files, read_record
from model.loading.hf_reference import PARTIAL, HubReference
from model.loading.hub import partial_path, published_path
from model.loading.model_file import ModelFile
from model.loading.safetensors import parsed_json, read_safetensors
from model.loading.wheels import cache_folder, has_hash

State = Literal["ready", "absent", "partial", "damaged"]
"""Whole; not pulled; begun, so that the same command goes on; or not as it was made."""
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class ModelAtHand:
    """A model as a list shows it; None for what is not known without more work."""

    name: str
    """What every command takes as MODEL."""
    kind: Literal["catalogue", "hub", "compressed"]
    state: State
    path: Path
    bytes: int
    """On the disk; of an absent model what it will take."""
    architecture: str | None = None
    parameters: int | None = None
    format: str | None = None
    license: str | None = None
    commit: str | None = None
    problem: str | None = None
    """Of a damaged one."""


def models_at_hand(folder: Path | None, here: Path, *, verify: bool = False) -> list[ModelAtHand]:
    """Every model of the catalogue, and what was pulled and compressed.

    Args:
        folder: the cache folder, if not the usual one.
        here: where compressed models are looked for, in its folders and no deeper.
        verify: also compare hashes, which reads every file whole.

    Raises:
        OSError, PullError: when the cache folder cannot be read, or there is none.
    """
    catalogue = [_published(model, folder, verify) for model in CATALOGUE.values()]
    return [*catalogue, *_from_hub(folder or cache_folder(), verify), *_compressed(here, verify)]


def _published(model: PublishedModel, folder: Path | None, verify: bool) -> ModelAtHand:
    path = published_path(folder, model)
    partial = partial_path(path)
    entry = ModelAtHand(
        name=model.key,
        kind="catalogue",
        state="absent",
        path=path,
        bytes=model.bytes,
        architecture=model.architecture,
        parameters=model.parameters,
        format=f"GGUF {model.format}",
        license=model.license,
    )
    if path.is_file():
        size = path.stat().st_size
        is_intact = has_hash(path, sha256=model.sha256, size=model.bytes) if verify else size == model.bytes
        state: State = "ready" if is_intact else "damaged"
        return dataclasses.replace(
            entry, state=state, bytes=size, problem=None if is_intact else _not_as_pulled(path.name)
        )
    if partial.is_file():
        return dataclasses.replace(entry, state="partial", path=partial, bytes=partial.stat().st_size)
    return entry


def _not_as_pulled(*files: str) -> str:
    return f"{', '.join(files)} is missing or not as it was pulled; pull it again"


def _from_hub(cache: Path, verify: bool) -> Iterator[ModelAtHand]:
    for place in sorted(cache.glob("hf/*/*/*")):
        yield from _pulled(place, _reference(place.relative_to(cache / "hf")), verify)
    for place in sorted(cache.glob("hf-gguf/*/*/*/*")):
        yield from _pulled(place, _reference(place.relative_to(cache / "hf-gguf")), verify)


def _reference(place: Path) -> HubReference | None:
    """Back from a place to what is kept there; None where the folder is none of ours."""
    revision, organisation, repository, *file = (part.removesuffix(PARTIAL) for part in place.parts)
    reference = HubReference(organisation, repository, unquote(file[0]) if file else None, unquote(revision))
    try:
        return HubReference.parse(reference.name)
    except ModelFileError:
        return None


def _pulled(place: Path, reference: HubReference | None, verify: bool) -> Iterator[ModelAtHand]:
    if reference is None or not place.is_dir():
        return
    if not place.name.endswith(PARTIAL):
        yield _pulled_whole(place, reference, verify)
    elif not place.with_name(place.name.removesuffix(PARTIAL)).exists():
        size = sum(path.stat().st_size for path in place.iterdir())
        yield ModelAtHand(reference.name, "hub", "partial", place, size)


def _pulled_whole(place: Path, reference: HubReference, verify: bool) -> ModelAtHand:
    path = place if reference.file is None else place / reference.file.rpartition("/")[2]
    record = read_record(place)
    if record is None:
        return _damaged(ModelAtHand(reference.name, "hub", "damaged", path, 0), _not_as_pulled(RECORD))
    entry = ModelAtHand(
        reference.name, "hub", "ready", path, record.bytes, license=record.license, commit=record.commit
    )
    try:
        if damaged := damaged_files(place, record, by_hash=verify):
            return _damaged(entry, _not_as_pulled(*damaged))
        return dataclasses.replace(entry, **(_of_folder(place, record) if reference.file is None else _of_gguf(path)))
    except (ModelFileError, ValueError, OSError) as error:
        return _damaged(entry, str(error))


def _damaged(entry: ModelAtHand, problem: str) -> ModelAtHand:
    return dataclasses.replace(entry, state="damaged", problem=problem)


def _of_gguf(path: Path) -> dict[str, Any]:
    header = read_header(ModelFile(path))
    stated = header.metadata.get("general.architecture")
    sizes: dict[str, int] = {}
    for tensor in header.tensors.values():
        sizes[tensor.format.name] = sizes.get(tensor.format.name, 0) + tensor.byte_count
    return {
        "architecture": stated.data if stated and isinstance(stated.data, str) else None,
        "parameters": sum(prod(tensor.shape) for tensor in header.tensors.values()),
        "format": _format("GGUF", sizes),
    }


def _of_folder(place: Path, record: Record) -> dict[str, Any]:
    stated = parsed_json((place / CONFIG).read_bytes())
    architecture = stated.get("model_type") if isinstance(stated, Mapping) else None
    weights = [read_safetensors(place / file.name) for file in record.files if file.name.endswith(".safetensors")]
    entries = [entry for part in weights for entry in part.entries.values()]
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.dtype] = sizes.get(entry.dtype, 0) + entry.byte_count
    return {
        "architecture": architecture if isinstance(architecture, str) else None,
        "parameters": sum(prod(entry.shape) for entry in entries),
        "format": _format("safetensors", sizes),
    }


def _format(container: str, sizes: Mapping[str, int]) -> str:
    """The container, and the type that takes most of it."""
    return f"{container} {max(sizes, key=lambda name: sizes[name])}" if sizes else container


def _compressed(here: Path, verify: bool) -> Iterator[ModelAtHand]:
    for manifest in sorted(here.glob(f"*/{MANIFEST}")):
        yield _artefact(manifest.parent, verify)
    for plan in sorted(here.glob(f"*{COMPRESSED_PARTIAL}/{PLAN}")):
        size = sum(path.stat().st_size for path in plan.parent.iterdir() if path.is_file())
        name = str(plan.parent).removesuffix(COMPRESSED_PARTIAL)
        yield ModelAtHand(name, "compressed", "partial", plan.parent, size)


def _artefact(folder: Path, verify: bool) -> ModelAtHand:
    entry = ModelAtHand(str(folder), "compressed", "ready", folder, 0)
    try:
        manifest = read_manifest(ModelFile(folder / MANIFEST))
        entry = dataclasses.replace(entry, **_of_artefact(manifest))
        files = {name: (stated["bytes"], stated["sha256"]) for name, stated in manifest["files"].items()}
        damaged = [name for name, stated in files.items() if not _is_as_stated(folder / name, *stated, verify)]
    except ModelFileError as error:
        return _damaged(entry, str(error))
    except (TypeError, KeyError, AttributeError, ValueError, OSError):
        return _damaged(entry, f"{MANIFEST} does not describe a compressed model")
    return _damaged(entry, f"{', '.join(damaged)} is missing or was changed") if damaged else entry


def _of_artefact(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Raises KeyError, TypeError and AttributeError."""
    recipe = manifest["recipe"].get("name")
    return {
        "bytes": sum(stated["bytes"] for stated in manifest["files"].values()),
        "architecture": str(manifest["config"]["architecture"]),
        "parameters": sum(prod(stated["shape"]) for stated in manifest["tensors"].values()),
        "format": recipe if isinstance(recipe, str) else None,
    }


def _is_as_stated(path: Path, size: int, sha256: str, verify: bool) -> bool:
    if verify:
        return has_hash(path, sha256=sha256, size=size)
    return path.is_file() and path.stat().st_size == size
