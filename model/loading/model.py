"""A model wherever it lies: one GGUF file, or the folder of a compressed model.

Knows no op sets. Always: what is returned was checked by the loader of its form.
"""

from pathlib import Path

from model.compression.artefact import load_artefact
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf


def load_model(path: Path) -> Checkpoint:
    """Raises ModelFileError, with the reason in one line and the place in the file where it is known."""
    return load_artefact(path) if _is_folder(path) else load_gguf(path)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except ValueError:  # a null byte, which the loader of files tells about
        return False
