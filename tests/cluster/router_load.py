"""The load test of `tane bench` through a router. Knows servers by their address; knows nothing of Ray."""

import asyncio
from collections.abc import Sequence

from service.cli.load import run_load
from service.cli.load_plan import Load, LoadPlan, Target
from service.cli.load_prompts import Length
from service.cli.load_report import LevelReport

TURNS = 4
"""Of each session, and requests of each group."""
AT_ONCE = 8
PROMPT_TOKENS, PREFIX_TOKENS, ANSWER_TOKENS = 160, 128, 16
TIMEOUT_S = 120.0


def run(url: str, api_key: str, *, sessions: int, groups: int, seed: int) -> list[LevelReport]:
    """Sessions with edits, and then prompts that begin alike within their group."""
    every = [
        _plan(Load("sessions", sessions), seed),
        _plan(Load("concurrency", AT_ONCE), seed, requests=groups * TURNS, prefix=PREFIX_TOKENS, groups=groups),
    ]
    return [asyncio.run(run_load([Target(url, api_key=api_key)], plan, lambda: None))[0].levels[0] for plan in every]


def _plan(load: Load, seed: int, *, requests: int | None = None, prefix: int = 0, groups: int = 1) -> LoadPlan:
    return LoadPlan(
        loads=(load,),
        requests=requests,
        prompt_tokens=Length(PROMPT_TOKENS, PROMPT_TOKENS),
        output_tokens=Length(ANSWER_TOKENS, ANSWER_TOKENS),
        seed=seed,
        warmup=2,
        timeout_s=TIMEOUT_S,
        shared_prefix=prefix,
        prefix_groups=groups,
        turns=TURNS,
    )


def affinity(levels: Sequence[LevelReport]) -> float:
    """Of the requests that belong with an earlier one, the part that came to its replica."""
    places = [level.places for level in levels if level.places is not None]
    return sum(each.returned for each in places) / max(1, sum(each.could_return for each in places))
