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


def pull_default(settings: Settings) -> Path:
    """Where the default model is, pulled with a bar when it is missing."""
    from model.loading.hub import pull

    with model_errors(), loading_bar("looking for the model") as on_progress:
        return pull(on_progress, folder=settings.models_folder)


def load_checkpoint(settings: Settings) -> "tuple[Path, Checkpoint]":
    """The model file that the settings name, or the default one, and what it says."""
    path = Path(settings.model) if settings.model is not None else pull_default(settings)
    return path, load_checkpoint_of(path)


def load_checkpoint_of(path: Path) -> "Checkpoint":
    """What a GGUF file or a model's folder says."""
    from model.loading.model import load_model

    with model_errors(), loading_bar("checking the model"):
        return load_model(path)


@contextmanager
def model_errors() -> Iterator[None]:
    """Tell why a model cannot be had or used, and end the command."""
    from model.chat import ChatTemplateError
    from model.loading.checkpoint import ModelFileError
    from model.loading.wheels import PullError

    try:
        yield
    except PullError as error:
        raise Failure(str(error)) from error
    except (ModelFileError, ChatTemplateError) as error:
        raise Unusable(str(error)) from error
