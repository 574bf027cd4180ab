"""`tane pull`: fetch a model of the catalogue or of the Hugging Face hub."""

import sys
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import Unusable, harmless, loading_bar, messages, write_json
from service.cli.loading import model_errors, read_settings
from service.cli.options import settings_options

if TYPE_CHECKING:
    from model.loading.catalogue import PublishedModel
    from model.loading.hf_reference import HubReference
    from service.settings import Settings


def list_catalogue(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """A click callback: print the names of the catalogue and end."""
    if value:
        from model.loading.catalogue import CATALOGUE

        width = max(map(len, CATALOGUE))
        for name, model in CATALOGUE.items():
            click.echo(f"{name:{width}}  {model.bytes / 1e6:4.0f} MB  {model.license}; {model.about}")
        context.exit()


@click.command()
@click.argument("name", required=False)
@click.option("--accept-terms", is_flag=True, help="Agree to the terms of use that the model has.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=list_catalogue, help="List names.")
@settings_options("cache_folder")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pull(name: str | None, accept_terms: bool, as_json: bool, **flags: Any) -> None:
    """Download a model, check it and keep it.

    NAME is one that --list shows, or on the Hugging Face hub hf:ORG/REPO for a folder in the form of transformers, or
    hf:ORG/REPO/FILE.gguf, each with @REVISION after it; without NAME it is the default model. Every command takes the
    same name as MODEL then. An interrupted pull goes on where it stopped. HF_TOKEN opens repositories that ask for a
    token, and HF_ENDPOINT names another hub.

    Prints where the model is. What is there and intact is not fetched again.

    \b
    Examples:
      tane pull
      tane pull gemma-3-270m
      tane pull hf:Qwen/Qwen2.5-0.5B-Instruct
      tane info "$(tane pull)"
    """
    from model.loading.catalogue import DEFAULT_MODEL, PublishedModel
    from model.loading.locate import named_anywhere

    settings = read_settings(flags)
    with model_errors():
        model = DEFAULT_MODEL if name is None else named_anywhere(name)
    if isinstance(model, PublishedModel):
        result = pull_published(model, settings, accept_terms=accept_terms)
    elif accept_terms:
        raise click.UsageError("leave out --accept-terms: who publishes a model on the hub asks for agreement there")
    else:
        result = pull_of_hub(model, settings)
    if as_json:
        write_json(result)
    else:
        click.echo(result["path"])


def pull_published(model: "PublishedModel", settings: "Settings", *, accept_terms: bool) -> dict[str, Any]:
    """Where the model is, pulled with a bar after its terms were accepted."""
    from model.loading.hub import is_pulled
    from model.loading.hub import pull as pull_model

    folder = settings.models_folder
    with model_errors():
        if model.terms and not is_pulled(folder, model):
            accept_terms = accepts(model, accept_terms)
        with loading_bar("looking for the model") as on_progress:
            path = pull_model(on_progress, folder=folder, model=model, accept_terms=accept_terms)
    return {
        "name": model.name,
        "path": str(path),
        "sha256": model.sha256,
        "bytes": model.bytes,
        "license": model.license,
    }


def accepts(model: "PublishedModel", accept_terms: bool) -> bool:
    """Show which terms the model has, and ask for agreement on a terminal. Raises Unusable where there is none."""
    if model.terms is None:
        return True
    messages().print(f"{model.name} may be used under the {model.terms.title}: {model.terms.url}", soft_wrap=True)
    if accept_terms:
        return True
    if not can_ask():
        raise Unusable(f"read the {model.terms.title} and agree to them with --accept-terms; nothing was fetched")
    if not click.confirm(f"Do you agree to the {model.terms.title}?", default=False, err=True):
        raise Unusable(f"the {model.terms.title} were not agreed to; nothing was fetched")
    return True


def can_ask() -> bool:
    """Whether somebody reads the question and can answer; a shell may also have closed either."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def pull_of_hub(reference: "HubReference", settings: "Settings") -> dict[str, Any]:
    """Where the model is, brought to what the hub has with a bar."""
    from model.loading.hf_pull import pull_from_hub, read_record

    with model_errors(), loading_bar("asking the hub") as on_progress:
        path = pull_from_hub(reference, settings.hub, on_progress, folder=settings.models_folder)
        record = read_record(reference.place(settings.models_folder))
    assert record is not None, "a pull that returned has left its record"
    if record.license:
        messages().print(harmless(f"licence: {record.license}"), soft_wrap=True)
    return {
        "name": record.name,
        "path": str(path),
        "commit": record.commit,
        "bytes": record.bytes,
        "license": record.license,
        "files": {file.name: {"bytes": file.bytes, file.algorithm: file.hash} for file in record.files},
    }
