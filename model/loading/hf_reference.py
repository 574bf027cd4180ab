"""Names of models on the Hugging Face hub: `hf:ORG/REPO`, one of its GGUF files, and a revision.

Knows no network. Always: the place of a reference lies below the cache folder, and no two references share one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from model.loading.checkpoint import ModelFileError
from model.loading.wheels import cache_folder

SCHEME = "hf:"
DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"
FORM = "hf:ORG/REPO, hf:ORG/REPO/FILE.gguf, and @REVISION after either"
PARTIAL = "+partial"
"""Ends the name of a folder whose pull is not finished; no repository has such a name."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_STEP = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class HubAccess:
    """Where the hub is, and who asks."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)


PUBLIC_HUB = HubAccess()


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository at a revision, or one GGUF file in it."""

    organisation: str
    repository: str
    file: str | None = None
    """Path inside the repository; None means the repository's model as a folder."""
    revision: str = DEFAULT_REVISION

    @classmethod
    def parse(cls, text: str) -> Self:
        """`text` begins with hf:. Raises ModelFileError."""
        path, at, revision = text.removeprefix(SCHEME).partition("@")
        organisation, _, rest = path.partition("/")
        repository, slash, file = rest.partition("/")
        reference = cls(organisation, repository, file if slash else None, revision if at else DEFAULT_REVISION)
        if not reference._is_well_formed:
            raise ModelFileError(f"no model of the hub: its name must be {FORM}")
        return reference

    @property
    def _is_well_formed(self) -> bool:
        return (
            all(_NAME.fullmatch(name) for name in (self.organisation, self.repository))
            and len(self.revision) <= _MOST_CHARACTERS
            and bool(_REVISION.fullmatch(self.revision))
            and (self.file is None or is_inner_path(self.file, suffix=".gguf"))
        )

    @property
    def repository_id(self) -> str:
        return f"{self.organisation}/{self.repository}"

    @property
    def name(self) -> str:
        """What users type."""
        file = "" if self.file is None else f"/{self.file}"
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{SCHEME}{self.repository_id}{file}{revision}"

    def place(self, folder: Path | None = None) -> Path:
        """The folder that holds what is pulled; the last part of its path is a name for people."""
        revision = quote(self.revision, safe="")
        cache = folder or cache_folder()
        if self.file is None:
            return cache / "hf" / revision / self.organisation / self.repository
        return cache / "hf-gguf" / revision / self.organisation / self.repository / quote(self.file, safe="")

    def path(self, folder: Path | None = None) -> Path:
        """What is loaded: the folder, or the file in it."""
        place = self.place(folder)
        return place if self.file is None else place / self.file.rpartition("/")[2]


def is_inner_path(path: str, *, suffix: str) -> bool:
    """Whether the path stays inside the folder that it is taken from, hides nothing and has that suffix."""
    return (
        len(path) <= _MOST_CHARACTERS
        and path.lower().endswith(suffix)
        and all(_STEP.fullmatch(step) for step in path.split("/"))
    )
