"""Figures kept in a compressed model's folder, as JSON: written whole, and believed only for the very same model.

Knows no figures. Always: what is read names the hash of the model that was asked for.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.loading.json_keys import read_json
from model.loading.model_file import ModelFile

EVALUATION = "evaluation.json"
HASH_FIELD = "model_sha256"
MAX_BYTES = 4 << 20


def write_evaluation(folder: Path, figures: Mapping[str, Any]) -> None:
    """Put the figures into the folder in one step. They name the model by `model_sha256`. Raises OSError."""
    assert isinstance(figures.get(HASH_FIELD), str), "figures of no model"
    working = folder / f".{EVALUATION}.{os.getpid()}"
    try:
        working.write_text(json.dumps(figures, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        working.replace(folder / EVALUATION)
    finally:
        working.unlink(missing_ok=True)


def read_evaluation(folder: Path, sha256: str) -> dict[str, Any] | None:
    """The figures of the model with this hash; None when the folder has none, or another model's.

    Raises ModelFileError when the file is there and cannot be read as figures.
    """
    path = folder / EVALUATION
    if not path.exists():
        return None
    file = ModelFile(path)
    figures = read_json(file, MAX_BYTES)
    if not isinstance(figures, dict):
        raise file.error("not an object of figures")
    return figures if figures.get(HASH_FIELD) == sha256 else None
