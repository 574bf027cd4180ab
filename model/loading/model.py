"""A model wherever it lies: one GGUF file, the folder of a compressed model, or a Hugging Face folder.

Knows no op sets. Always: what is returned was checked by the loader of its form.
"""

import os
from pathlib import Path

from model.compression.artefact import MANIFEST, load_artefact
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.gguf import load_gguf
from model.loading.hf_folder import CONFIG, load_hf_folder


def load_model(path: Path) -> Checkpoint:
    """Raises ModelFileError, with the reason in one line and the place in the file where it is known."""
    if not _is_folder(path):
        return load_gguf(path)
    if os.path.lexists(path / MANIFEST):
        return load_artefact(path)
    if os.path.lexists(path / CONFIG):
        return load_hf_folder(path)
    raise ModelFileError(f"a folder with neither {MANIFEST} nor {CONFIG} is no model", path=path)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except ValueError:  # a null byte, which the loader of files tells about
        return False
