"""What a user calls a model, and where it lies: a path, a name of the catalogue, or a model of the hub.

Always: a path that exists is that path, whatever else has its name; what was pulled is found without the network.
"""

import difflib
from pathlib import Path

from model.loading.catalogue import CATALOGUE, DEFAULT_MODEL, PublishedModel
from model.loading.checkpoint import ModelFileError
from model.loading.hf_reference import PUBLIC_HUB, SCHEME, HubAccess, HubReference
from model.loading.hub import Progress, pull

Named = Path | PublishedModel | HubReference


def named(text: str) -> Named:
    """What the text names. Raises ModelFileError for a name of the hub that is none."""
    path = Path(text)
    if _exists(path):
        return path
    if model := CATALOGUE.get(text.lower()):
        return model
    if text.startswith(SCHEME):
        return HubReference.parse(text)
    if near := difflib.get_close_matches(text.lower(), CATALOGUE, 1):
        raise ModelFileError(f"no such file or folder; did you mean the model {near[0]}?", path=path)
    return path


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
