"""What a step of beam search costs beside a step of greedy decoding, through the engine that serves.

Each case is one request alone, run by the engine as a server runs it: its rows, the ranking, the pages that are shared
and copied. Always: the cases of a round follow each other, and each figure is the median of its rounds.
"""

import time
from pathlib import Path
from typing import Any

import click

from model.decoding.params import DecodingParameters
from model.loading.hub import pull
from model.native import _native
from service.cli.console import count_bar
from service.cli.options import integer_list
from service.request import Delta, Finished, GenerationRequest
from service.settings import Settings
from service.startup import load
from tests.bench import machine
from tests.bench.record import deliver, markdown_table, output_options
from tests.bench.timing import Times, interleaved

NAME = "beams"
MILLISECONDS = 1000
TARGETS = {4: 2.0, 8: 3.5}
"""At most so many times a greedy step."""
PROMPT = "The history of the town begins with a mill on the river, of which the oldest records say that"
GREEDY = 1


class Runs:
    """One engine, and requests for it that ignore the end of the text."""

    def __init__(self, model: Path, *, new_tokens: int, prompt_tokens: int, threads: int | None) -> None:
        flags = {"model": str(model), "engine": "native", **({"threads": threads} if threads else {})}
        loaded = load(Settings.load({}, flags))
        self.name = loaded.model.name
        self._engine = loaded.engine
        ids = loaded.model.tokenizer.encode(PROMPT)
        self._prompt = tuple((ids * (1 + prompt_tokens // len(ids)))[:prompt_tokens])
        self._new_tokens = new_tokens

    def step_of(self, width: int) -> float:
        """Seconds of a step: of a request of this width, or of a greedy one, after its prompt."""
        parameters = DecodingParameters(self._new_tokens, 0, temperature=0.0, beam_width=width, ignore_eos=True)
        request = GenerationRequest("r", self._prompt, parameters)
        self._engine.submit(request, 0.0)
        events = self._engine.step()[0]
        started, steps = time.perf_counter(), 0
        while not self._engine.is_idle:
            events = self._engine.step()[0]
            steps += 1
        seconds = time.perf_counter() - started
        assert isinstance(events[-1], Finished)
        assert not isinstance(events[0], Delta)
        return seconds / steps


def measure(
    model: Path, widths: tuple[int, ...], *, rounds: int, new_tokens: int, prompt_tokens: int, threads: int | None
) -> dict[str, Any]:
    """All figures."""
    runs = Runs(model, new_tokens=new_tokens, prompt_tokens=prompt_tokens, threads=threads)
    cases = {width: (lambda width=width: runs.step_of(width)) for width in (GREEDY, *widths)}
    with count_bar("rounds", rounds + 1) as on_round:
        times = interleaved(cases, rounds=rounds, on_round=on_round)
    return {
        "command": f"python -m tests.bench.beams --rounds {rounds} --record",
        "machine": machine.described(),
        "model": runs.name,
        "rounds": rounds,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "instruction_set": machine.ISAS[_native.best_isa()],
        "widths": [_point(width, times[width], times[GREEDY]) for width in (GREEDY, *widths)],
    }


def _point(width: int, times: Times, greedy: Times) -> dict[str, Any]:
    return {
        "width": width,
        "milliseconds": times.median * MILLISECONDS,
        "least_milliseconds": times.least * MILLISECONDS,
        "over_greedy": times.median / greedy.median,
    }


def table(figures: dict[str, Any]) -> str:
    """One row for each width."""
    rows = [
        (
            "greedy" if each["width"] == GREEDY else str(each["width"]),
            f"{each['milliseconds']:.2f}",
            f"{each['over_greedy']:.2f}",
            f"{TARGETS[each['width']]:g}" if each["width"] in TARGETS else "",
        )
        for each in figures["widths"]
    ]
    note = (
        f"{figures['model']}, one request of {figures['prompt_tokens']} prompt tokens and {figures['new_tokens']} new "
        f"ones, {figures['instruction_set']}, medians of {figures['rounds']} rounds. `{figures['command']}`"
    )
    return f"{markdown_table(('beams', 'ms for a step', 'times greedy', 'at most'), rows)}\n\n{note}"


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--widths", callback=integer_list, default="2,4,8,16", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="How often each is measured.")
@click.option("--new-tokens", type=click.IntRange(2), default=48, show_default=True)
@click.option("--prompt-tokens", type=click.IntRange(1), default=100, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@output_options
def main(model: Path | None, widths: tuple[int, ...], as_json: bool, records: bool, **given: Any) -> None:
    """Measure the cost of a step of beam search over a greedy one.

    \b
    Examples:
      python -m tests.bench.beams --rounds 1 --widths 4,8
      python -m tests.bench.beams --record
    """
    figures = measure(model or pull(), widths, **given)
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
