"""Pulls a model from the Hugging Face hub into a folder of its own.

Knows which files a model needs, and how a pull goes on after another. Always: the folder is whole or absent, each file
in it was checked against the hash that the hub states for it, and `pulled.json` names commit and hashes; what an ended
pull left beside it is used again only where its hash is the one that is wanted; pulls at the same time wait for each
other.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.loading.durable import sync_folder
from model.loading.hf_client import HubClient, HubFile, Listing
from model.loading.hf_reference import PARTIAL, HubAccess, HubReference, is_inner_path
from model.loading.hub import Progress, check_room, keeping_in, partial_progress
from model.loading.wheels import PullError, locked

RECORD = "pulled.json"
RECORD_FORMAT = "tane-pulled"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NEEDED = ("config.json",)
TAKEN = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Beside the weights, where the repository has them."""
_OLD = "+old"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What a folder holds, as `pulled.json` says it."""

    name: str
    """What users type."""
    commit: str
    license: str | None
    files: tuple[HubFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def pull_from_hub(
    reference: HubReference,
    access: HubAccess,
    progress: Progress,
    *,
    folder: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Bring the model to what the hub has now; return what is loaded, a folder or a GGUF file. Raises PullError."""
    place = reference.place(folder)
    with keeping_in(place.parent), HubClient(access, sleep=sleep) as hub:
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.parent):
            _Pull(reference, hub, place, progress).run()
    return reference.path(folder)


class _Pull:
    """One pull, while its place is held."""

    def __init__(self, reference: HubReference, hub: HubClient, place: Path, progress: Progress) -> None:
        self._reference, self._hub, self._place, self._progress = reference, hub, place, progress
        self._partial = place.with_name(place.name + PARTIAL)

    def run(self) -> None:
        listing = self._hub.listing(self._reference)
        if self._is_current(listing):
            return
        self._partial.mkdir(exist_ok=True)
        files = self._wanted(listing)
        self._check_room(files)
        total, done = sum(file.bytes for file in files), 0
        for file in files:
            self._bring(listing, file, partial_progress(self._progress, done, total))
            done += file.bytes
        self._finish(Record(self._reference.name, listing.commit, listing.license, tuple(files)))

    def _is_current(self, listing: Listing) -> bool:
        record = read_record(self._place)
        return record is not None and record.commit == listing.commit and not damaged_files(self._place, record)

    def _wanted(self, listing: Listing) -> list[HubFile]:
        """The files to have, the smallest first, so that what is missing or refused is known early."""
        if self._reference.file is not None:
            return [_listed(listing, self._reference.file, self._reference)]
        check_has_weights(listing, self._reference)
        names = [name for name in TAKEN if name in listing.files or name in NEEDED]
        names += [WEIGHTS] if WEIGHTS in listing.files else [INDEX, *self._shards(listing)]
        return sorted((_listed(listing, name, self._reference) for name in names), key=lambda file: file.bytes)

    def _shards(self, listing: Listing) -> list[str]:
        index = _listed(listing, INDEX, self._reference)
        self._bring(listing, index, _ignore)
        return shards_of((self._partial / INDEX).read_bytes(), self._reference)

    def _check_room(self, files: list[HubFile]) -> None:
        replaced = read_record(self._place)
        linked = {file.hash for file in replaced.files} if replaced else set()
        missing = [file for file in files if file.hash not in linked and not (self._partial / _own_name(file)).exists()]
        parts = [self._partial / _part_name(file) for file in missing]
        begun = sum(part.stat().st_size for part in parts if part.exists())
        check_room(self._partial, sum(file.bytes for file in missing) - begun)

    def _bring(self, listing: Listing, file: HubFile, told: Callable[[int], None]) -> None:
        """Have the file in the partial folder: from an ended pull, from the folder to be replaced, or from the hub."""
        target, part = self._partial / _own_name(file), self._partial / _part_name(file)
        if not is_whole(target, file):
            target.unlink(missing_ok=True)
            if is_whole(self._place / _own_name(file), file):
                _link(self._place / _own_name(file), target)
            else:
                self._hub.download(self._reference, listing.commit, file, part, told)
                _keep(part, target, file)
        told(file.bytes)

    def _finish(self, record: Record) -> None:
        """Give the folder its name. What it does not need goes first, and then what it replaces."""
        keep = {_own_name(file) for file in record.files}
        for path in self._partial.iterdir():
            if path.name not in keep:
                path.unlink()
        with (self._partial / RECORD).open("w", encoding="utf-8") as sink:
            json.dump({"format": RECORD_FORMAT, "version": 1, **asdict(record)}, sink, indent=2)
            sink.flush()
            os.fsync(sink.fileno())
        sync_folder(self._partial)
        old = self._place.with_name(self._place.name + _OLD)
        shutil.rmtree(old, ignore_errors=True)
        if self._place.exists():
            self._place.rename(old)
        self._partial.rename(self._place)
        sync_folder(self._place.parent)
        shutil.rmtree(old, ignore_errors=True)


def check_has_weights(listing: Listing, reference: HubReference) -> None:
    """Raises PullError, which says what of the repository could be named instead."""
    if WEIGHTS in listing.files or INDEX in listing.files:
        return
    files = sorted(name for name in listing.files if name.lower().endswith(".gguf"))
    hint = f"; name one of its GGUF files, such as hf:{reference.repository_id}/{files[0]}" if files else ""
    raise PullError(f"{reference.repository_id} has no {WEIGHTS} and no {INDEX}{hint}")


def shards_of(index: bytes, reference: HubReference) -> list[str]:
    """The files that the index of sharded weights names. Raises PullError."""
    try:
        names = sorted(set(json.loads(index)["weight_map"].values()))
        are_shards = all("/" not in name and is_inner_path(name, suffix=".safetensors") for name in names)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        names, are_shards = [], False
    if not names or not are_shards:
        raise PullError(f"{INDEX} of {reference.repository_id} names no shards beside it")
    return names


def _ignore(done: int) -> None:
    pass


def _listed(listing: Listing, name: str, reference: HubReference) -> HubFile:
    file = listing.files.get(name)
    if file is None:
        raise PullError(f"{reference.repository_id} has no {name} at commit {listing.commit[:12]}")
    return file


def _own_name(file: HubFile) -> str:
    return file.name.rpartition("/")[2]


def _part_name(file: HubFile) -> str:
    """By its content, so that a part is never continued with another file's."""
    return f"{file.hash}.part"


def _link(source: Path, target: Path) -> None:
    """The same file once more, where the file system has that, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def _keep(part: Path, target: Path, file: HubFile) -> None:
    """Raises PullError, and throws the file away, where it is not what the hub stated."""
    found = hash_of(part, file)
    if found != file.hash:
        part.unlink()
        raise PullError(
            f"{file.name} has {file.algorithm} {found}, and the hub states {file.hash}: it was changed on the way and "
            "thrown away; pull again"
        )
    with part.open("rb") as whole:
        os.fsync(whole.fileno())
    part.rename(target)


def hash_of(path: Path, file: HubFile) -> str:
    """Of the whole file, as the hub forms it for `file`. Raises OSError."""
    digest = hashlib.sha256() if file.algorithm == "sha256" else hashlib.sha1(usedforsecurity=False)
    if file.algorithm != "sha256":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as source:
        while piece := source.read(_CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def is_whole(path: Path, file: HubFile) -> bool:
    """Whether that file lies there with its size and hash. Raises OSError when it cannot be read."""
    return has_size(path, file) and hash_of(path, file) == file.hash


def has_size(path: Path, file: HubFile) -> bool:
    return path.is_file() and path.stat().st_size == file.bytes


def damaged_files(place: Path, record: Record, *, by_hash: bool = True) -> list[str]:
    """Names of the record's files that are missing or not as they were pulled. Raises OSError."""
    intact = is_whole if by_hash else has_size
    return [file.name for file in record.files if not intact(place / _own_name(file), file)]


def read_record(place: Path) -> Record | None:
    """What was pulled there; None where nothing was, or where the record cannot be read."""
    try:
        stated = json.loads((place / RECORD).read_bytes())
        if stated["format"] != RECORD_FORMAT or stated["version"] != 1:
            return None
        name, commit, license = stated["name"], stated["commit"], stated["license"]
        if not (isinstance(name, str) and isinstance(commit, str) and isinstance(license, str | None)):
            return None
        return Record(name, commit, license, tuple(map(_recorded, stated["files"])))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _recorded(stated: Mapping[str, Any]) -> HubFile:
    """Raises TypeError and ValueError for what no pull writes."""
    file = HubFile(**stated)
    texts = (file.name, file.hash, file.algorithm)
    are_known = all(isinstance(text, str) for text in texts) and type(file.bytes) is int
    if not are_known or not is_inner_path(file.name, suffix=""):
        raise ValueError("no file of a pull")
    return file
