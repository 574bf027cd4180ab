"""`tane serve`: load the model and answer over HTTP until a signal ends it."""

import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from service import __version__
from service.cli.console import Failure, Told, Unusable, harmless, loading_bar, messages
from service.cli.loading import model_errors, read_settings
from service.cli.options import settings_options
from service.logs import configure_logging, form_for, told

if TYPE_CHECKING:
    from service.context import Served, Service
    from service.settings import Settings

logger = logging.getLogger(__name__)

EVERY_ADDRESS = ("0.0.0.0", "::")
EXAMPLE = '{"prompt": "The capital of France is", "temperature": 0, "max_new_tokens": 16}'


@click.command()
@settings_options()
def serve(**flags: Any) -> None:
    """Serve a model over HTTP, and variants beside it.

    Without --model the default model is served, and pulled when it is missing. Requests choose a --variant by its name
    as `model`; each has an engine of its own, so every limit of memory, queue and sessions holds for each. SIGTERM and
    Ctrl-C let running requests finish, for at most --drain-s seconds; a second one ends at once. Each option is also an
    environment variable: --kv-cache-bytes is TANE_KV_CACHE_BYTES, and values of one that repeats are separated by
    spaces; the option wins.

    \b
    Examples:
      tane serve
      tane serve --host 0.0.0.0 --port 9000 --keys-file keys.txt --metrics-port 9100
      tane serve --variant small=./small-gptq-4bit --variant half=./half.gguf --draft small
      TANE_MODEL=./other.gguf tane serve
    """
    settings = read_settings(flags)
    from service.allocator import give_back_large_blocks
    from service.server import run_server

    give_back_large_blocks()

    form = form_for(settings.log_format, sys.stderr)
    configure_logging(settings.log_level, form, sys.stderr)
    if form == "json":
        logger.info("start", extra=told("start", version=__version__, pid=os.getpid()))
    try:
        service = _loaded(settings)
    except Told as problem:
        if form == "text":
            raise
        logger.critical(problem.message, extra=told("not_started", exit_code=problem.exit_code))
        raise click.exceptions.Exit(problem.exit_code) from problem
    if form == "text":
        for line in banner(service, settings):
            messages().print(harmless(line), soft_wrap=True)
    else:
        _tell_of(service)
    raise click.exceptions.Exit(run_server(service, settings))


def _loaded(settings: "Settings") -> "Service":
    """What is to be served. Raises Failure and Unusable."""
    from service.addresses import address_problem, exposure_problem
    from service.keys import KeysError
    from service.startup import build_service
    from service.traced import TracingError, tracer_for

    if problem := exposure_problem(settings):
        raise Unusable(problem)
    if problem := address_problem(settings):
        raise Failure(problem)
    try:
        tracer = tracer_for(settings)
        with model_errors(), loading_bar("loading the model") as progress:
            service = build_service(settings, progress=progress)
    except (KeysError, TracingError) as error:
        raise Unusable(str(error)) from error
    return service if tracer is None else replace(service, tracer=tracer)


def _tell_of(service: "Service") -> None:
    """What the banner tells, as a line for each model."""
    for served in service.models.values():
        info = served.engine_info
        logger.info(
            "loaded",
            extra=told(
                "loaded",
                model=served.model.name,
                engine=info.engine,
                fingerprint=info.fingerprint,
                context_length=info.context_length,
                kv_cache_bytes=info.kv_cache_bytes,
            ),
        )


def banner(service: "Service", settings: "Settings") -> list[str]:
    """What is served where, and a line to try it with."""
    main, *variants = service.models.values()
    info, model = main.engine_info, main.model
    tokens = info.page_count * info.page_size
    address = address_of(settings)
    lines = [
        f"model   {model.name}, {model.config.context_length} tokens of context",
        *(_variant_line(variant) for variant in variants),
        f"engine  {info.engine}, answers repeat {info.reproducibility_level.replace('_', ' ')}",
        *(
            [f"draft   {model.draft.name}, {model.draft.kv_cache_bytes / 2**20:.0f} MiB of cache"]
            if model.draft
            else []
        ),
        f"cache   {info.kv_cache_bytes / 2**20:.0f} MiB, {tokens} tokens",
        f"address {address or 'a free port, named below'}",
    ]
    if address:
        key = "" if service.keys is None else '-H "authorization: Bearer $TANE_API_KEY" '
        lines.append(f"try     curl {address}/generate {key}-H 'content-type: application/json' -d '{EXAMPLE}'")
    return lines


def _variant_line(variant: "Served") -> str:
    model, report = variant.model, variant.model.report
    recipe = f"{report.recipe}, " if report.recipe else ""
    return (
        f"variant {model.name}, {recipe}{report.bits_per_weight:.2f} bits a weight, {report.bytes / 2**20:.0f} MiB of "
        f"weights, {model.config.context_length} tokens of context, "
        f"{variant.engine_info.kv_cache_bytes / 2**20:.0f} MiB of cache"
    )


def address_of(settings: "Settings") -> str | None:
    """Where a caller on this machine finds the server; None when the port is not known yet."""
    if not settings.port:
        return None
    host = "127.0.0.1" if settings.host in EVERY_ADDRESS else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
