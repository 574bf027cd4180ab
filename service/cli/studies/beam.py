"""`tane study beam`: greedy decoding and beams of several widths beside the likeliest sequence of all."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from service.cli.console import count_bar
from service.cli.options import refuse_without_effect
from service.cli.plotting import COLOURS, figure, for_plot
from service.cli.studies.common import (
    Prompted,
    list_of,
    model_option,
    output_options,
    prompt_option,
    prompted,
    table,
    write,
)

if TYPE_CHECKING:
    from model.studies.beam import BeamStudy, Tokens

MOST_LETTERS = 10
RANDOM_LENGTH, REAL_LENGTH = 6, 12
GREEDY = "greedy"


@click.command()
@click.option(
    "--widths", callback=list_of(click.IntRange(1, 16)), metavar="LIST", default="1,2,3,4,8", show_default=True
)
@click.option(
    "--vocabulary",
    type=click.IntRange(2, MOST_LETTERS),
    default=6,
    show_default=True,
    help="Of the random model.",
)
@click.option(
    "--length",
    type=click.IntRange(1, 64),
    help=f"Of its sequences.  [default: {RANDOM_LENGTH}; {REAL_LENGTH} with a real model]",
)
@click.option("--seed", type=click.IntRange(0), default=192, show_default=True, help="Of the random model.")
@model_option("Search what a model says after --prompt instead; its sequences are too many to try all.")
@prompt_option
@output_options("the log-probability of what is found against the width")
def beam(
    *,
    widths: tuple[int, ...],
    vocabulary: int,
    length: int | None,
    seed: int,
    model: str | None,
    prompt: str | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compare greedy decoding and beam search with the likeliest sequence (definition 3.2, proposition 3.3).

    Three models: the two of the proposition's proof, in which greedy decoding and a width of 2 miss the likeliest
    sequence, and a random one whose next token hangs on the last; with its default seed a width of 3 finds less than
    one of 2. Every sequence has the same length, and no token ends one. Probabilities that were evaluated are counted,
    and are at most n·B·|V|.

    \b
    Examples:
      tane study beam
      tane study beam --vocabulary 8 --length 5 --seed 3 --plot beam.svg
      tane study beam --prompt "Once upon a time" --widths 1,2,4,8
    """
    if model is prompt is None:
        check_size(vocabulary, length or RANDOM_LENGTH)
        asked, found = None, example_studies(widths, vocabulary, length or RANDOM_LENGTH, seed)
    else:
        refuse_without_effect(("vocabulary", "seed"), "a real model is searched")
        asked = prompted(model, prompt, length=length or REAL_LENGTH, width=max(widths))
        found = [real_study(asked, widths, length or REAL_LENGTH)]
    spell = asked.tokenizer.decode if asked else letters
    figures = {"models": [asdict(each) | {"texts": texts(each, spell)} for each in found]}
    write([beam_table(each, spell) for each in found], [], figures, as_json=as_json)
    if plot is not None:
        draw(found, plot)


def check_size(vocabulary: int, length: int) -> None:
    """Every sequence of the random model is tried, so there must not be too many."""
    from model.studies.beam import MOST_SEQUENCES

    if vocabulary**length > MOST_SEQUENCES:
        raise click.UsageError(
            f"--vocabulary {vocabulary} and --length {length} make {vocabulary**length:,} sequences, and at most "
            f"{MOST_SEQUENCES:,} are tried"
        )


def example_studies(widths: tuple[int, ...], vocabulary: int, length: int, seed: int) -> "list[BeamStudy]":
    """The proposition's two models, to the width that tries everything, and a random one."""
    from model.studies.beam import BEAM_FAILS, GREEDY_FAILS, random_model, study

    models = [
        ("proposition 3.3.1", GREEDY_FAILS, 2, (1, 2)),
        ("proposition 3.3.4", BEAM_FAILS, 2, (1, 2, 3)),
        (f"random, seed {seed}", random_model(vocabulary, seed), length, widths),
    ]
    return [study(*each) for each in models]


def real_study(asked: Prompted, widths: tuple[int, ...], length: int) -> "BeamStudy":
    """A real model after a prompt."""
    from model.studies.beam import study

    with count_bar("searching", len(widths) + 1) as on_found:
        return study(f"{asked.name} after {asked.prompt!r}", asked.model, length, widths, on_found=on_found)


def letters(tokens: "Tokens") -> str:
    """a for 0, b for 1, …"""
    return "".join(chr(ord("a") + token) for token in tokens)


def texts(found: "BeamStudy", spell: "Callable[[Tokens], str]") -> dict[str, str]:
    """What each way of decoding wrote."""
    return {GREEDY if not each.width else str(each.width): spell(each.tokens) for each in found.found}


def beam_table(found: "BeamStudy", spell: "Callable[[Tokens], str]") -> Table:
    """A row for each way of decoding, and one for the likeliest sequence of all."""
    sizes = f"|V| = {found.vocabulary:,}, n = {found.length}"
    made = table(f"{found.name}: {sizes}", "found by", "sequence", "p", "log p", "evaluated", "n·B·|V|")
    for each in found.found:
        name = f"B = {each.width}" if each.width else GREEDY
        made.add_row(
            name,
            _quoted(spell(each.tokens)),
            *(f"{each.probability:.4g}", f"{each.logprob:.4f}"),
            *(f"{count:,}" for count in (each.candidates, each.most_candidates)),
        )
    if found.best is not None:
        numbers = (f"{found.best_probability:.4g}", f"{found.best_logprob:.4f}")
        made.add_row("trying all", _quoted(spell(found.best)), *numbers, f"{found.vocabulary**found.length:,}", "")
    return made


def _quoted(text: str) -> str:
    return text if text.isalpha() else repr(text)


def draw(found: "list[BeamStudy]", path: Path) -> None:
    """A panel for each model: log-probability over the width."""
    with figure(path, len(found), size=(max(3.2 * len(found), 5), 3.2)) as panels:
        for panel, each in zip(panels, found, strict=True):
            greedy, *searched = each.found
            logprobs = {one.width: one.logprob for one in sorted(searched, key=lambda one: one.width)}
            widths = list(logprobs)
            panel.plot(widths, list(logprobs.values()), "o-", color=COLOURS[0], markersize=4, label="beams")
            panel.axhline(greedy.logprob, color=COLOURS[1], linestyle=":", label=GREEDY)
            if each.best_logprob is not None:
                panel.axhline(each.best_logprob, color=COLOURS[5], linestyle="--", label="the likeliest")
            panel.set(title=for_plot(each.name), xlabel="width B", ylabel="log p", xticks=widths)
            panel.grid(alpha=0.3)
        panels[-1].legend(frameon=False, loc="center right")
