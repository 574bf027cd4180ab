"""What was found of each compressed model so far: scores token by token, and figures. A run that is repeated goes on.

Always: what lies here is of one dense model, one text and one way of running; a model that was made anew has another
hash and so another place; a file is whole or absent.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model.evaluation.agreement import Numbers, TokenScores

HASH_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder, which is made when something is put there."""

    folder: Path

    def figures(self, sha256: str) -> dict[str, Any] | None:
        path = self._path(sha256, "json")
        found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return found

    def put_figures(self, sha256: str, figures: Mapping[str, Any]) -> None:
        path = self._path(sha256, "json")
        working = path.with_suffix(".working")
        working.write_text(json.dumps(figures, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        working.replace(path)

    def scores(self, sha256: str) -> TokenScores | None:
        arrays = self._arrays(sha256)
        return None if arrays is None else TokenScores(**arrays)

    def put_scores(self, sha256: str, scores: TokenScores) -> None:
        names = [field.name for field in dataclasses.fields(TokenScores)]
        self._put_arrays(sha256, {name: getattr(scores, name) for name in names})

    def nll(self, sha256: str, way: str) -> Numbers | None:
        """Of all tokens, by the model run in another way than the one that is scored."""
        arrays = self._arrays(f"{way}-{sha256}")
        return None if arrays is None else arrays["nll"]

    def put_nll(self, sha256: str, way: str, nll: Numbers) -> None:
        self._put_arrays(f"{way}-{sha256}", {"nll": nll})

    def _arrays(self, name: str) -> dict[str, Any] | None:
        path = self._path(name, "npz")
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}

    def _put_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        path = self._path(name, "npz")
        working = path.with_suffix(".working")
        with working.open("wb") as sink:
            np.savez(sink, **arrays)
        working.replace(path)

    def _path(self, name: str, suffix: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        way, _, sha256 = name.rpartition("-")
        return self.folder / f"{f'{way}-' if way else ''}{sha256[:HASH_CHARACTERS]}.{suffix}"
