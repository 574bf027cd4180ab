"""`tane replay`: run records again, on a server or in this process, and say whether the answers are still the same.

Always: every record gets its line, whatever became of those before it. Exit codes are those of `diff`: 0 all equal,
1 some differ, 2 trouble: a record that is none, or a request that could not be run.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from service.cli.console import Unusable, count_bar, for_terminal, loading_bar, write_json
from service.cli.loading import model_errors, read_settings
from service.cli.options import address, api_key_text, refuse_without_effect, settings_options
from service.cli.records import Line, read_records
from service.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.local_generator import LocalGenerator

EQUAL, DIFFERENT, TROUBLE = range(3)

Run = Callable[[Any], Mapping[str, Any]]
"""From a record to what `POST /replay` answers. Raises ServiceError or TaneError."""

SAID: Mapping[str, str] = {
    "other_model": "another model",
    "other_fingerprint": "another fingerprint",
    "other_version": "another version of the library",
    "contradictory_record": "the record contradicts itself: its request was edited",
    "other_parameters": "other parameters",
    "parameters_not_accepted": "the request is not accepted",
    "best_effort": "the same bits were not promised",
    "unexplained": "unexplained",
    "cut_by_deadline": "the record was cut by its deadline, and is compared as far as it goes",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record: an answer of `POST /replay`, or an error."""

    number: int
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        if self.result is None:
            return TROUBLE
        return EQUAL if self.result["equal"] else DIFFERENT

    def as_json(self) -> dict[str, Any]:
        return {"record": self.number, **(self.result if self.result is not None else {"error": self.error})}


@click.command()
@click.argument("file")
@click.option("--url", callback=address, metavar="URL", help="Ask this server instead of loading the model here.")
@click.option(
    "--api-key",
    envvar="TANE_API_KEY",
    callback=api_key_text,
    metavar="KEY",
    help="Key of the server of --url, better given as TANE_API_KEY.",
)
@settings_options("model", "engine", "threads")
@click.option("--json", "as_json", is_flag=True, help="Print a list with what POST /replay answers for each record.")
def replay(
    *,
    file: str,
    url: str | None,
    api_key: str | None,
    model: str | None,
    engine: str | None,
    threads: str | None,
    as_json: bool,
) -> None:
    """Run the records of FILE again and compare the answers.

    FILE is what `tane generate --record` wrote: a record on each line, `{"request": …, "answer": …}`; "-" reads
    standard input. What must change no text is left out: model name, session, speculation, deadline and stream. The
    exit code is 0 when all answers are equal, 1 when some differ, and 2 when a record could not be run.

    \b
    Examples:
      tane replay runs.jsonl
      tane replay runs.jsonl --url http://127.0.0.1:8000
    """
    flags = {"model": model, "engine": engine, "threads": threads}
    if url is not None and any(value is not None for value in flags.values()):
        raise click.UsageError("--url asks a server, which has its own --model, --engine and --threads")
    if url is None:
        refuse_without_effect(["api_key"], "no server is asked without --url")
    lines = read_records(file)
    with _local(flags) if url is None else _server(url, api_key) as run:
        outcomes = run_all(lines, run)
    if as_json:
        write_json([outcome.as_json() for outcome in outcomes])
    else:
        for outcome in outcomes:
            click.echo(for_terminal(summary(outcome)))
    raise click.exceptions.Exit(max(outcome.exit_code for outcome in outcomes))


def run_all(lines: Sequence[Line], run: Run) -> list[Outcome]:
    """Run one record after the other, with a bar over several."""
    bar: AbstractContextManager[Callable[[], None]] = nullcontext(lambda: None)
    if len(lines) > 1:
        bar = count_bar("replaying", len(lines))
    outcomes = []
    with bar as advance:
        for line in lines:
            outcomes.append(run_one(line, run))
            advance()
    return outcomes


def run_one(line: Line, run: Run) -> Outcome:
    from service.client import TaneError

    if line.error is not None:
        return Outcome(line.number, None, _told(line.error))
    try:
        return Outcome(line.number, run(line.record))
    except (ServiceError, TaneError) as error:
        return Outcome(line.number, None, _told(error))


def summary(outcome: Outcome) -> str:
    """A record's line."""
    result = outcome.result
    if result is None:
        return f"{outcome.number}: error: {(outcome.error or {})['message']}"
    told = [f"{outcome.number}: " + ("equal" if result["equal"] else "different")]
    if result["first_difference"] is not None:
        told[0] += f" {_difference(result['first_difference'])}"
    if result["refusal"] is not None:
        told.append(result["refusal"]["message"])
    told += [SAID.get(name, name) for name in dict.fromkeys((*result["reasons"], *result["notes"]))]
    if result["dropped"]:
        told.append("left out: " + ", ".join(result["dropped"]))
    return " · ".join(told)


def _difference(difference: Mapping[str, Any]) -> str:
    place = f"in {difference['field']}"
    if difference["index"] is not None:
        place += f" of choice {difference['index']}"
    if difference["position"] is not None:
        place += f" at {difference['position']}"
    return f"{place}: {_shown(difference['expected'])} was recorded, now {_shown(difference['found'])}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item!r}" for name, item in value.items())
    return "nothing" if value is None else repr(value)


def _told(error: Any) -> dict[str, Any]:
    message = error.message.replace("the body", "the record")
    return {"code": error.code, "message": message, "param": error.param}


@contextmanager
def _server(url: str, api_key: str | None) -> "Iterator[Run]":
    from service.client import TaneClient, TaneError

    with TaneClient(url, api_key=api_key) as client:
        try:
            client.info()
        except TaneError as error:  # what answers in any way is asked: each record is told what it says
            if error.status is None:
                raise Unusable(f"no server answers at {url}") from error
        yield lambda record: client.replay(record).raw


@contextmanager
def _local(flags: Mapping[str, Any]) -> "Iterator[Run]":
    settings = read_settings(flags)
    with model_errors(), loading_bar("loading the model") as progress:
        from service.local_generator import LocalGenerator

        generator = LocalGenerator(settings, progress=progress)
    yield lambda record: replay_locally(record, generator)


def replay_locally(record: Any, generator: "LocalGenerator") -> Mapping[str, Any]:
    """What a server with this model would answer. Raises ServiceError."""
    from service.context import unknown_model
    from service.replay_record import read_record, replay_with, within
    from service.responses import GenerateAnswer

    checked = read_record(record)
    if checked.asked_for not in (None, generator.model.name):
        raise unknown_model([generator.model.name])
    what = replay_with(checked, generator, secrets.token_hex(16))
    if what.asked is None:
        return what.refused()
    with within("request"):
        finished = _end_of(generator.stream(what.asked.request))
    return what.result(GenerateAnswer(generator, what.asked).whole(finished))


def _end_of(events: "Iterable[Any]") -> Any:
    from service.request import Failed
    from service.responses import failure

    *_, last = events
    if isinstance(last, Failed):
        raise failure(last)
    return last
