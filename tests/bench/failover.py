"""Two servers, many streams at one of them, and `kill -9` while they are told their texts: what each caller gets.

Always: every stream is compared with the answer of a calm run, and was cut after some of its tokens had come; a pause
is the longest time between two of its events of which the second one came after the kill.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from model.loading.hub import pull
from service.client import AsyncClient
from tests.bench import machine
from tests.bench.record import markdown_table
from tests.faults.process import serving_process

STREAMS, NEW_TOKENS = 16, 160
TOLD = 8
"""Tokens that every stream has been told before the kill."""
LOOK_S = 0.005
COMPARED = ("text", "token_ids", "finish_reason", "logprobs", "seed")
WORDS = "[a-z]{2,9}( [a-z]{2,9}){20,400}"
SCORED = {"top_p": 0.95, "repetition_penalty": 1.1, "logprobs": {"top": 1}}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0, "ignore_eos": True},
    "sampled": {"temperature": 0.9, "ignore_eos": True, **SCORED},
    "constrained": {"temperature": 0.8, "constraint": {"regex": WORDS}},
    "in a session": {"temperature": 0.7, "ignore_eos": True},
}


@dataclass(slots=True)
class Heard:
    """What one caller was told, and when."""

    kind: str
    events: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(len(event["token_ids"]) for event in self.events)

    @property
    def answer(self) -> dict[str, Any]:
        """The terminal event, as far as it is a function of the request."""
        return {name: self.events[-1][name] for name in COMPARED}

    @property
    def joined(self) -> tuple[str, list[int]]:
        pieces = self.events[:-1]
        return "".join(each["text"] for each in pieces), [one for each in pieces for one in each["token_ids"]]

    @property
    def resumed_tokens(self) -> int:
        resumed: int = self.events[-1]["usage"]["resumed_tokens"]
        return resumed

    def pause_s(self, since: float) -> float:
        gaps = [after - before for before, after in zip(self.times, self.times[1:], strict=False) if after >= since]
        return max(gaps, default=0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    equal: bool
    """To the calm run: the answer, and the pieces that it came in."""
    resumed_tokens: int
    pause_s: float


def questions(streams: int, new_tokens: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests of all kinds in turn, and the kind of each."""
    asked = []
    for number in range(streams):
        kind = list(KINDS)[number % len(KINDS)]
        session = {"session_id": f"s{number}"} if kind == "in a session" else {}
        prompt = f"Chapter {number + 1}. The seed lies in the ground and waits for the rain."
        fields = {"prompt": prompt, "seed": number, "max_new_tokens": new_tokens, **KINDS[kind], **session}
        asked.append((kind, fields))
    return asked


async def listen(client: AsyncClient, heard: Heard, fields: Mapping[str, Any]) -> None:
    async for event in client.stream(**fields):
        heard.times.append(time.perf_counter())
        heard.events.append(event)


async def ask_all(
    urls: Sequence[str], asked: Sequence[tuple[str, dict[str, Any]]], kill: Callable[[], None] | None = None
) -> tuple[list[Heard], float]:
    """What every caller heard, and when `kill` was called: once all of them had been told something."""
    everyone = [Heard(kind) for kind, _ in asked]
    async with AsyncClient(urls) as client, asyncio.TaskGroup() as group:
        for heard, (_, fields) in zip(everyone, asked, strict=True):
            group.create_task(listen(client, heard, fields))
        while kill is not None and any(heard.tokens < TOLD for heard in everyone):
            await asyncio.sleep(LOOK_S)
        killed = time.perf_counter()
        if kill is not None:
            kill()
    return everyone, killed


def survive(urls: Sequence[str], kill: Callable[[], None], streams: int, new_tokens: int) -> list[Outcome]:
    """Each stream at the first server, which is killed; the other one is there."""
    asked = questions(streams, new_tokens)
    calm, _ = asyncio.run(ask_all(urls, asked))
    cut, killed = asyncio.run(ask_all(urls, asked, kill))
    return [
        Outcome(
            here.kind,
            (here.answer, here.joined) == (there.answer, there.joined),
            here.resumed_tokens,
            here.pause_s(killed),
        )
        for here, there in zip(cut, calm, strict=True)
    ]


def measure(model: Path, streams: int, new_tokens: int) -> dict[str, Any]:
    """All figures."""
    with serving_process(model, "--threads", "1") as one, serving_process(model, "--threads", "1") as other:
        outcomes = survive([one.url, other.url], one.process.kill, streams, new_tokens)
    return {
        "command": f"python -m tests.bench.failover --streams {streams} --new-tokens {new_tokens}",
        "machine": machine.described(),
        "model": model.name,
        "streams": streams,
        "new_tokens": new_tokens,
        "outcomes": [
            {
                "kind": each.kind,
                "equal": each.equal,
                "resumed_tokens": each.resumed_tokens,
                "pause_s": round(each.pause_s, 4),
            }
            for each in outcomes
        ],
    }


def table(figures: Mapping[str, Any]) -> str:
    rows = []
    for kind in [*KINDS, "all"]:
        of_kind = [each for each in figures["outcomes"] if kind in (each["kind"], "all")]
        if not of_kind:
            continue
        pauses = [each["pause_s"] for each in of_kind]
        resumed = [each["resumed_tokens"] for each in of_kind]
        rows.append(
            [
                kind,
                f"{sum(each['equal'] for each in of_kind)} of {len(of_kind)}",
                f"{min(resumed)} to {max(resumed)}",
                f"{statistics.median(pauses):.2f}",
                f"{max(pauses):.2f}",
            ]
        )
    headings = ["streams", "as in a calm run", "tokens resumed", "pause, s: median", "longest"]
    note = f"{figures['model']}, {figures['streams']} streams, 1 thread a server. `{figures['command']}`"
    return f"{markdown_table(headings, rows)}\n\n{note}"


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="A model instead of the default one.")
@click.option("--streams", type=click.IntRange(min=1), default=STREAMS, show_default=True, help="At the same time.")
@click.option("--new-tokens", type=click.IntRange(min=2 * TOLD), default=NEW_TOKENS, show_default=True, help="Of each.")
def main(*, out: Path | None, model: Path | None, streams: int, new_tokens: int) -> None:
    """Kill one of two servers under many streams, and compare what their callers get with a calm run.

    Ends with 1 where any stream differs or none was cut.
    """
    figures = measure(model or pull(), streams, new_tokens)
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    click.echo(table(figures))
    if not all(each["equal"] and each["resumed_tokens"] for each in figures["outcomes"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
