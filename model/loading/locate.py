"""What a user calls a model, and where it lies: a path, a name of the catalogue, or a model of the hub.

Always: a path that exists is that path, whatever else has its name; what was pulled is found without the network.
"""

import difflib
from pathlib import Path

from model.loading.catalogue import CATALOGUE, DEFAULT_MODEL, PublishedModel
from model.loading.checkpoint import ModelFileError
from model.loading.cursor import shown
from model.loading.hf_reference import FORM, PUBLIC_HUB, SCHEME, HubAccess, HubReference
from model.loading.hub import Progress, pull

LONGEST_NAME = 255
Published = PublishedModel | HubReference


def published(text: str) -> Published | None:
    """What can be pulled under that name, if anything. Raises ModelFileError for a name of the hub that is none."""
    return HubReference.parse(text) if text.startswith(SCHEME) else CATALOGUE.get(text.lower())


def named_anywhere(text: str) -> Published:
    """What can be pulled under that name. Raises ModelFileError where nothing can."""
    if model := published(text):
        return model
    raise ModelFileError(
        f"{shown(text)} is no name of a model{_hint(text)}; known are {', '.join(CATALOGUE)} and {FORM}"
    )


def named(text: str) -> Path | Published:
    """What the text names here. Raises ModelFileError for a word that is no name, and for what is none of the hub's."""
    path = Path(text)
    if _exists(path):
        return path
    if model := published(text):
        return model
    is_word = path.name == text and not path.suffix and text.isprintable() and len(text) <= LONGEST_NAME
    if hint := _hint(text) or (f"; names of models are {', '.join(CATALOGUE)} and {FORM}" if is_word else ""):
        raise ModelFileError(f"no such file or folder{hint}", path=path)
    return path


def _hint(text: str) -> str:
    near = difflib.get_close_matches(text.lower(), CATALOGUE, 1)
    return f"; did you mean the model {near[0]}?" if near else ""


def locate(
    text: str | None, *, folder: Path | None = None, hub: HubAccess = PUBLIC_HUB, progress: Progress | None = None
) -> Path:
    """Where the model lies, or the default one; one that has a name is pulled first when it is missing.

    `folder`: the cache folder, if not the usual one. Raises PullError and ModelFileError.
    """
    model = DEFAULT_MODEL if text is None else named(text)
    if isinstance(model, Path):
        return model
    if isinstance(model, PublishedModel):
        return pull(progress, folder=folder, model=model)
    place = model.path(folder)
    if _exists(place):
        return place
    from model.loading.hf_pull import pull_from_hub

    return pull_from_hub(model, hub, progress or _ignore, folder=folder)


def _ignore(done: int, total: int) -> None:
    pass


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or a null byte: the loader of files tells about it
        return False
