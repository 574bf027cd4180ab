"""From a command's options to settings and a checked model file, with progress on the way.

Always: what is wrong with an option or a file ends the command in one line for each problem, without a traceback.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.console import Failure, Unusable, loading_bar
from service.settings import Settings, SettingsError

if TYPE_CHECKING:
    from model.loading.checkpoint import Checkpoint


def read_settings(flags: Mapping[str, Any]) -> Settings:
    """The settings of the environment and of the flags that were given."""
    try:
        return Settings.from_environment(flags)
    except SettingsError as error:
        raise Unusable(str(error)) from error


def find_model(model: str | None, settings: Settings) -> Path:
    """Where a model lies, or the default one; one that has a name is pulled with a bar when it is missing."""
    from model.loading.locate import locate

    with model_errors(), loading_bar("looking for the model") as on_progress:
        return locate(model, folder=settings.models_folder, hub=settings.hub, progress=on_progress)


def load_checkpoint(settings: Settings) -> "tuple[Path, Checkpoint]":
    """The model that the settings name, or the default one, and what it says."""
    path = find_model(settings.model, settings)
    return path, load_checkpoint_of(path)


def load_checkpoint_of(path: Path) -> "Checkpoint":
    """What a GGUF file or a folder says."""
    from model.loading.model import load_model

    with model_errors(), loading_bar("checking the model"):
        return load_model(path)


@contextmanager
def model_errors() -> Iterator[None]:
    """Tell why a model cannot be had or used, and end the command."""
    from model.loading.checkpoint import ModelFileError
    from model.loading.hub import TermsNotAccepted
    from model.loading.wheels import PullError

    try:
        yield
    except TermsNotAccepted as error:
        raise Unusable(str(error)) from error
    except PullError as error:
        raise Failure(str(error)) from error
    except ModelFileError as error:
        raise Unusable(str(error)) from error
