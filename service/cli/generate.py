"""`tane generate`: text from a prompt, in this process and without a server.

Always: what may be asked, and what is said about a bad value, is what `POST /generate` accepts and says.
"""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from service.cli.console import Failure, Unusable, for_terminal, loading_bar, messages, results, write_json
from service.cli.constraint_options import constraint_options, take_constraint
from service.cli.loading import model_errors, read_settings
from service.cli.options import field_options, settings_options
from service.cli.records import RecordFile
from service.cli.text_input import read_text
from service.cli.token_tables import explanation_table, logprob_table

if TYPE_CHECKING:
    from service.local_generator import LocalGenerator
    from service.request import Event, Finished


@click.command()
@click.argument("prompt", required=False)
@click.option("--chat", is_flag=True, help="Put PROMPT into the model's chat template, as a user's message.")
@field_options(
    "max_new_tokens",
    "min_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "num_return",
    "beam_width",
    "length_penalty",
    "repetition_penalty",
    "penalty_scope",
    "presence_penalty",
    "frequency_penalty",
    "speculation",
    "explain",
)
@constraint_options
@click.option("--logprobs", type=int, help="Show log-probabilities, and so many of the likeliest tokens.")
@settings_options("model", "draft", "engine", "threads")
@click.option("--json", "as_json", is_flag=True, help="Print the whole response, as POST /generate gives it.")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the request and its answer to FILE, which must not exist, for `tane replay`.",
)
@click.option("--append", is_flag=True, help="Add the record to FILE when it exists, as one more line.")
def generate(
    *,
    prompt: str | None,
    chat: bool,
    model: str | None,
    draft: str | None,
    engine: str | None,
    threads: str | None,
    as_json: bool,
    record: Path | None,
    append: bool,
    **fields: Any,
) -> None:
    """Continue PROMPT, without a server.

    The text streams to standard output, and a last line on standard error says how it went. "-" or a pipe reads
    the prompt from standard input.

    \b
    Examples:
      tane generate "The capital of France is" --temperature 0
      tane generate --chat "Write a haiku about rain." --seed 7
      tane generate --json --max-new-tokens 32 < prompt.txt
      tane generate --chat "Name a fruit." --json-schema fruit.json
      tane generate "Once upon a time" --record runs.jsonl && tane replay runs.jsonl
    """
    from service.errors import InvalidField
    from service.replay import record_of
    from service.schemas import GenerateRequest, read

    settings = read_settings({"model": model, "draft": draft, "engine": engine, "threads": threads})
    records = record_file(record, append=append)
    take_constraint(fields)
    try:
        sent = request_body(read_text(prompt, "PROMPT"), chat=chat, **fields)
        body = read(GenerateRequest, sent)
        with model_errors(), loading_bar("loading the model") as progress:
            from service.local_generator import LocalGenerator

            generator = LocalGenerator(settings, progress=progress)
        answer = run(generator, body, as_json)
    except InvalidField as error:
        raise Unusable(error.message) from error
    if records is not None:
        records.write(record_of(sent, answer))


def record_file(path: Path | None, *, append: bool) -> RecordFile | None:
    """Where the record goes, if anywhere. Raises Unusable for a place that cannot take it."""
    if path is not None:
        return RecordFile(path, append=append)
    if append:
        raise click.UsageError("--append needs --record")
    return None


def request_body(text: str, *, chat: bool, logprobs: int | None, **fields: Any) -> dict[str, Any]:
    """The JSON body that would ask a server for the same."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    if logprobs is not None:
        body["logprobs"] = {"top": logprobs}
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    return body | {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def run(generator: "LocalGenerator", body: Any, as_json: bool) -> dict[str, Any]:
    """Generate and print, and give back the answer. A single text is printed as it is made, several at the end."""
    from service.domain import read_generate
    from service.responses import GenerateAnswer

    is_live = not as_json and body.num_return == 1
    body = body.model_copy(update={"stream": is_live})
    asked = read_generate(body, generator.model, generator.engine_info.context_length, secrets.token_hex(16))
    finished = follow(generator.stream(asked.request))
    answer = GenerateAnswer(generator, asked).whole(finished)
    if as_json:
        write_json(answer)
    else:
        show_rest(answer, finished, is_live)
    return answer


def follow(events: "Iterable[Event]") -> "Finished":
    """Print deltas as they come; answer the end. Raises Failure when the request failed."""
    from service.request import Delta, Failed, Finished
    from service.responses import failure

    for event in events:
        if isinstance(event, Delta):
            click.echo(for_terminal(event.text), nl=False)
        elif isinstance(event, Failed):
            raise Failure(failure(event).message)
        elif isinstance(event, Finished):
            return event
    raise AssertionError("the events ended without a terminal one")


def show_rest(answer: Mapping[str, Any], finished: "Finished", is_shown: bool) -> None:
    """What is still to be printed once all is done: the texts unless they stand there, and how it went."""
    choices = answer.get("choices", [answer])
    for choice in choices:
        if not is_shown:
            click.echo(f"[{choice['index']}] {for_terminal(choice['text'])}", nl=False)
        click.echo()
        if choice["logprobs"] is not None:
            results().print(logprob_table(choice["logprobs"]))
        if "explain" in choice:
            results().print(explanation_table(choice["explain"]))
    reasons = ", ".join(choice["finish_reason"] for choice in choices)
    rate = finished.timings.tokens_per_second
    speed = f" · {rate:.1f} tokens/s" if rate else ""
    line = f"{finished.usage.generated_tokens} tokens{speed} · seed {answer['seed']} · {reasons}"
    if finished.stopped is not None:
        scores = ", ".join(f"{choice['score']:.3f}" for choice in choices)
        line += f" · score {scores} · stopped: {finished.stopped}"
    guesses = finished.speculation
    if guesses.drafted_tokens:
        line += f" · {guesses.accepted_tokens} of {guesses.drafted_tokens} guesses kept"
    messages().print(Text(line, "dim"), soft_wrap=True)
