"""What the options of `tane bench` mean, and which do not go together. Knows no server.

Always: what is refused is refused before any request, with the reason; a key is in no message.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from service.cli.load_plan import Load, LoadPlan, Target
from service.cli.load_prompts import Length
from service.cli.load_report import Objective
from service.cli.options import address, integer_list

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_CONCURRENCY = (1, 4, 8)
DEFAULT_TURNS = 4
COMPARED_ROUNDS = 3
CLASHES: Sequence[tuple[str, str, str]] = (
    ("rate", "concurrency", "requests either arrive by themselves or when another has ended"),
    ("sessions", "concurrency", "each session is one stream"),
    ("sessions", "rate", "a session sends its next turn when the last has ended"),
    ("sessions", "requests", "each session makes --turns requests"),
    ("sessions", "shared_prefix", "a session shares its own prompt with its next turns"),
    ("compare", "url", "each server is named by --compare"),
)
"""Pairs of options, and why not both."""


def lengths(context: click.Context, parameter: click.Parameter, value: str) -> Length:
    """A click callback: `N`, or `A:B` for any number of these."""
    low, separator, high = value.partition(":")
    try:
        length = Length(int(low), int(high if separator else low))
    except ValueError:
        length = Length(0, 0)
    if not 1 <= length.low <= length.high:
        raise click.BadParameter("must be a whole number of at least 1, or two such as 16:256, the lower first")
    return length


def rates(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    """A click callback: numbers above 0, separated by commas, or none given."""
    if value is None:
        return None
    try:
        numbers = tuple(float(part) for part in value.split(","))
    except ValueError:
        numbers = (0.0,)
    if not all(number > 0 and math.isfinite(number) for number in numbers):
        raise click.BadParameter("must be numbers above 0 separated by commas, such as 0.5,1,2")
    return numbers


def objective(context: click.Context, parameter: click.Parameter, value: str | None) -> Objective | None:
    """A click callback: `ttft:MS`, `itl:MS` or both, or none given."""
    if value is None:
        return None
    pairs = [part.partition(":") for part in value.split(",")]
    try:
        limits = {name: float(number) for name, _, number in pairs}
    except ValueError:
        limits = {}
    valid = all(limit > 0 and math.isfinite(limit) for limit in limits.values())
    if not limits or len(limits) < len(pairs) or not limits.keys() <= {"ttft", "itl"} or not valid:
        raise click.BadParameter("must be limits in milliseconds, such as ttft:500,itl:50, or one of the two")
    return Objective(limits.get("ttft"), limits.get("itl"))


def seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """A click callback: a number that is one, and has an end."""
    if not math.isfinite(value):
        raise click.BadParameter("must be a number of seconds above 0")
    return value


def named_addresses(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """A click callback: each is NAME=URL, and no name stands twice."""
    pairs = [value.partition("=") for value in values]
    for name, _, url in pairs:
        if not name or not url:
            raise click.BadParameter("must be NAME=URL")
        address(context, parameter, url)
    named = {name: url for name, _, url in pairs}
    if len(named) < len(pairs):
        raise click.BadParameter("names one server twice")
    if len(named) == 1:
        raise click.BadParameter("takes at least two servers: give it once for each")
    return named


def load_options(command: Command) -> Command:
    """Add what decides which requests are made and when. They arrive as `plan_of` takes them."""
    for option in reversed(_LOAD_OPTIONS):
        command = option(command)
    return command


def targets_of(
    url: str | None, compare: Mapping[str, str], model: str | None, api_key: str | None
) -> tuple[Target, ...]:
    """The servers. Of several only the first is told the key, which is its own."""
    if not compare:
        return (Target(url or DEFAULT_URL, model, None, api_key),)
    return tuple(
        Target(each, model, name, None if place else api_key) for place, (name, each) in enumerate(compare.items())
    )


def plan_of(given: Mapping[str, Any], *, seed: int, is_compared: bool) -> LoadPlan:
    """The plan that the load options describe. Raises click.BadParameter for what does not go together."""
    loads = _loads(given)
    requests, shared, prompt = given["requests"], given["shared_prefix"] or 0, given["prompt_tokens"]
    if given["turns"] is not None and given["sessions"] is None:
        raise click.BadParameter("goes with --sessions: only a session has turns", param_hint="--turns")
    if requests is not None and loads[0].kind == "concurrency" and requests < max(load.value for load in loads):
        raise click.BadParameter("must be at least the largest --concurrency", param_hint="--requests")
    if shared >= prompt.low:
        raise click.BadParameter("must be less than --prompt-tokens, which counts it", param_hint="--shared-prefix")
    if given["sessions"] is not None and prompt.low < 2:  # noqa: PLR2004
        raise click.BadParameter(
            "must be at least 2 with --sessions: a turn changes a word after the first", param_hint="--prompt-tokens"
        )
    if given["prefix_groups"] is not None and not shared:
        raise click.BadParameter("goes with --shared-prefix: each group has its own", param_hint="--prefix-groups")
    return LoadPlan(
        loads=loads,
        requests=requests,
        prompt_tokens=prompt,
        output_tokens=given["output_tokens"],
        seed=seed,
        warmup=given["warmup"],
        timeout_s=given["timeout"],
        shared_prefix=shared,
        prefix_groups=given["prefix_groups"] or 1,
        turns=given["turns"] or DEFAULT_TURNS,
        rounds=given["rounds"] or (COMPARED_ROUNDS if is_compared else 1),
        objective=given["goodput"],
        ignore_eos=given["ignore_eos"],
    )


def refuse_clashes(given: Mapping[str, Any]) -> None:
    """Raises click.BadParameter when two options were given that do not go together."""
    for name, other, reason in CLASHES:
        if given[name] and given[other]:
            flags = [f"--{each.replace('_', '-')}" for each in (name, other)]
            raise click.BadParameter(f"does not go with {flags[1]}: {reason}", param_hint=flags[0])


def _loads(given: Mapping[str, Any]) -> tuple[Load, ...]:
    if given["rate"]:
        return tuple(Load("rate", rate) for rate in given["rate"])
    if given["sessions"]:
        return tuple(Load("sessions", sessions) for sessions in given["sessions"])
    return tuple(Load("concurrency", streams) for streams in given["concurrency"] or DEFAULT_CONCURRENCY)


def _integers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    return None if value is None else integer_list(context, parameter, value)


_LOAD_OPTIONS = (
    click.option(
        "--concurrency",
        metavar="LIST",
        callback=_integers,
        help="Closed loop: streams kept open at once; a comma-separated list is run level by level.  [default: 1,4,8]",
    ),
    click.option(
        "--rate",
        metavar="LIST",
        callback=rates,
        help="Open loop: requests per second, arriving at random (Poisson) whatever is unanswered; times count from "
        "when each was due.",
    ),
    click.option(
        "--sessions",
        metavar="LIST",
        callback=_integers,
        help="Sessions at once, whose turns each change one word of the last prompt. Needs /generate with session_id: "
        "Tane.",
    ),
    click.option("--turns", type=click.IntRange(1), help=f"Turns of each session.  [default: {DEFAULT_TURNS}]"),
    click.option(
        "--requests",
        type=click.IntRange(1),
        help="Requests at each level; default: 8, or 2 for each stream, or 10 seconds of --rate, where that is more.",
    ),
    click.option(
        "--prompt-tokens",
        metavar="N|A:B",
        callback=lengths,
        default="64",
        show_default=True,
        help="About how many tokens each prompt has; A:B draws each length from this range evenly.",
    ),
    click.option(
        "--output-tokens",
        metavar="N|A:B",
        callback=lengths,
        default="64",
        show_default=True,
        help="Tokens to generate for each prompt; A:B as above.",
    ),
    click.option(
        "--shared-prefix",
        metavar="N",
        type=click.IntRange(1),
        help="Let all prompts begin with the same N tokens or so, of those that --prompt-tokens counts.",
    ),
    click.option(
        "--prefix-groups",
        metavar="N",
        type=click.IntRange(1),
        help="Let prompts fall into N groups in turn, each with a shared prefix of its own.",
    ),
    click.option(
        "--seed", type=click.IntRange(0), help="Seed of texts, lengths and arrivals; default: a new one, shown."
    ),
    click.option(
        "--warmup", type=click.IntRange(0), default=2, show_default=True, help="Requests made before measuring."
    ),
    click.option("--rounds", type=click.IntRange(1), help="Times each level is run.  [default: 1, with --compare 3]"),
    click.option(
        "--goodput",
        metavar="ttft:MS,itl:MS",
        callback=objective,
        help="Count the requests whose first token came in time and whose mean time between tokens was kept.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        callback=seconds,
        default=300.0,
        show_default=True,
        help="Seconds of silence after which a request has failed.",
    ),
    click.option(
        "--ignore-eos/--stop-at-eos",
        default=True,
        show_default=True,
        help="Ask for exactly --output-tokens tokens, with the field ignore_eos.",
    ),
)
