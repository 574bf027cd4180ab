"""Tane beside other servers of the same model: decoding, first tokens, and many streams at once.

Any server with OpenAI's `/v1/completions` can be a peer. Always: one measurement is made on each server in turn, the
order reversed every second round, and never on two at once, so that a disturbed machine disturbs all of them alike.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from service.cli.console import count_bar
from service.cli.options import integer_list
from tests.bench import machine
from tests.bench.http_scaling import level_of
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.served import served

NAME = "peers"
OURS = "Tane"
GUESSING = "Tane, guessing"
ANSWER = 64
STREAM_PROMPT = 64
MILLISECONDS = 1000
OTHER_PROMPTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Server:
    """Where one is. Tane may guess tokens ahead; then the text decides how fast it comes."""

    url: str
    guesses: bool = False

    def seed(self, seed: int) -> int:
        """Both ways of Tane are one server, whose cache must hold neither's prompts."""
        return seed + OTHER_PROMPTS * self.guesses


Take = Callable[[Server, int], float]


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of figure. More is better where `is_rate`, else less."""

    name: str
    is_rate: bool
    take: Take
    """From a server and a seed."""


def decode_rate(prompt: int) -> Take:
    """Tokens per second of one stream after its first token."""

    def take(server: Server, seed: int) -> float:
        report, _ = level_of(server.url, 1, prompt, ANSWER, seed=server.seed(seed), guesses=server.guesses)
        assert report.stream_tokens_per_second is not None, "a stream of many tokens has a rate"
        return report.stream_tokens_per_second.p50

    return take


def first_token(prompt: int) -> Take:
    """Milliseconds until the first token of a prompt that no cache holds."""

    def take(server: Server, seed: int) -> float:
        report, _ = level_of(server.url, 1, prompt, 2, seed=server.seed(seed), guesses=server.guesses)
        assert report.time_to_first_token_s is not None, "a stream that ended well had a first token"
        return report.time_to_first_token_s.p50 * MILLISECONDS

    return take


def total_rate(streams: int) -> Take:
    """Tokens per second over all streams, their prompts' time counted too."""

    def take(server: Server, seed: int) -> float:
        report, _ = level_of(server.url, streams, STREAM_PROMPT, ANSWER, seed=server.seed(seed), guesses=server.guesses)
        return report.tokens_per_second

    return take


def measures(contexts: Sequence[int], streams: Sequence[int]) -> list[Measure]:
    return [
        *(Measure(f"decode after {n:,} tokens, tokens/s", True, decode_rate(n)) for n in contexts),
        *(Measure(f"first token of {n:,}, ms", False, first_token(n)) for n in contexts if n > STREAM_PROMPT),
        *(Measure(f"{n} streams together, tokens/s", True, total_rate(n)) for n in streams),
    ]


def measure(
    servers: dict[str, Server], wanted: Sequence[Measure], rounds: int, on_round: Callable[[], None] = lambda: None
) -> dict[str, dict[str, float]]:
    """The median of each measure on each server, by the measure's name."""
    found: dict[str, dict[str, list[float]]] = {each.name: {name: [] for name in servers} for each in wanted}
    for number in range(rounds):
        for place, each in enumerate(wanted):
            order = list(servers) if number % 2 == 0 else list(servers)[::-1]
            for name in order:
                found[each.name][name].append(each.take(servers[name], number * 1000 + place))
        on_round()
    return {
        each: {name: statistics.median(values) for name, values in by_server.items()}
        for each, by_server in found.items()
    }


def ratio(wanted: Measure, figures: dict[str, float], peer: str) -> float:
    """How many times as good Tane is."""
    ours, theirs = figures[OURS], figures[peer]
    return ours / theirs if wanted.is_rate else theirs / ours


def table(figures: dict[str, Any]) -> str:
    peers: list[str] = figures["peers"]
    headings = ["", OURS, GUESSING, *(text for peer in peers for text in (peer, f"{OURS} over {peer}"))]
    rows = [
        [
            each["name"],
            *(f"{each['medians'][name]:,.0f}" for name in (OURS, GUESSING)),
            *(text for p in peers for text in (f"{each['medians'][p]:,.0f}", f"{each['ratios'][p]:.2f}×")),
        ]
        for each in figures["measures"]
    ]
    note = (
        f"{ANSWER} new tokens; the streams' prompts have {STREAM_PROMPT} tokens; every prompt new to every cache. "
        "Answers are greedy and often repeat themselves, which is what guessing (`speculation: auto`) is fast at; the "
        f"ratios are without it. Medians of {figures['rounds']} rounds, servers in turn. `{figures['command']}`"
    )
    return f"{markdown_table(headings, rows)}\n\n{note}"


def named_urls(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if not all(name and separator and url for name, separator, url in pairs):
        raise click.BadParameter("each is NAME=URL", context, parameter)
    return {name: url for name, _, url in pairs}


@click.command()
@click.option("--peer", "peers", multiple=True, required=True, callback=named_urls, help="NAME=URL of another server.")
@click.option("--contexts", default="16,512,1024", show_default=True, callback=integer_list)
@click.option("--streams", default="8", show_default=True, callback=integer_list)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="How often each is measured.")
@output_options
def main(
    *,
    peers: dict[str, str],
    contexts: tuple[int, ...],
    streams: tuple[int, ...],
    rounds: int,
    as_json: bool,
    records: bool,
) -> None:
    """Measure Tane beside other servers that run the same model.

    Examples:
      python -m tests.bench.peers --peer "llama.cpp=http://127.0.0.1:8081"
    """
    wanted = measures(contexts, streams)
    with served() as server, count_bar("rounds", rounds) as on_round:
        ours = {OURS: Server(server.url), GUESSING: Server(server.url, guesses=True)}
        theirs = {name: Server(url) for name, url in peers.items()}
        medians = measure(ours | theirs, wanted, rounds, on_round)
    named = " ".join(f"--peer '{name}=URL'" for name in peers)
    figures: dict[str, Any] = {
        "command": f"python -m tests.bench.peers {named} --rounds {rounds} --record",
        "machine": machine.described(),
        "rounds": rounds,
        "peers": list(peers),
        "measures": [
            {
                "name": each.name,
                "medians": medians[each.name],
                "ratios": {peer: ratio(each, medians[each.name], peer) for peer in peers},
            }
            for each in wanted
        ],
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
