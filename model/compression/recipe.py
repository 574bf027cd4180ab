"""What is done to the linear layers of a model, and the names that say it.

Knows no weights and no model. Always: a recipe is possible, and `parse` makes the same recipe of its name again.

A name is one or more parts joined by `+`, in this order:

- `ffn-50`, `heads-33`, `layers-10`: so many per cent of the feed-forward neurons, of the key heads with their queries,
  of the layers are removed, and matrices become smaller;
- `magnitude-50`, `obd-50`, `saliency-50`, `wanda-50`, `sparsegpt-50`, `obc-50`: so many per cent of the weights become
  zero; `-2of4` in place of the number: two zeros of every four neighbours;
- `rtn-4bit-g64`, `gptq-3bit-row`, `uniform-8bit-matrix`: the weights move to a grid of so many bits, of a group of
  columns, a row or a matrix. `-sym`, `-min` and `-uniform` behind it name another form than the affine one with an
  exact zero, `-clip` a searched range, `-p99.9` a percentile;
- `refit`: what is left is fitted to the inputs once more.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from model.compression.grids import Form, GridSpec, Whole
from model.compression.hessian import FIRST_DAMPENING
from model.compression.ranges import FULL_RANGE, Maximum, Percentile, Range, Searched
from model.compression.selection import Pattern, Share, Sparsity

Unit = Literal["ffn", "heads", "layers"]
PruneMethod = Literal["magnitude", "obd", "saliency", "wanda", "sparsegpt", "obc"]
QuantiseMethod = Literal["rtn", "gptq"]
PERCENT = 100
_DIGITS = 15
"""Of a percentage in a name: all that a float is sure to keep."""

RECIPES = (
    *(f"{method}-{bits}bit-g64" for bits in (8, 4, 3) for method in ("rtn", "gptq")),
    *(f"rtn-{bits}bit-g64-{form}" for bits in (8, 4, 3) for form in ("sym", "min")),
    *(f"uniform-{bits}bit-row" for bits in (8, 4, 3)),
    *(f"{method}-{bits}bit-g64-clip" for bits in (4, 3) for method in ("rtn", "gptq")),
    *(f"{method}-{share}" for share in ("50", "2of4") for method in get_args(PruneMethod) if method != "obc"),
    "magnitude-50+refit",
    "sparsegpt-50+gptq-4bit-g64",
    "sparsegpt-2of4+gptq-4bit-g64",
    "magnitude-50+rtn-4bit-g64",
    "ffn-50",
    "ffn-50+gptq-4bit-g64",
    "heads-33",
    "layers-10",
)
"""Names of the usual recipes."""

_FORMS: dict[str, Form] = {"sym": "symmetric", "min": "minimum", "uniform": "uniform"}
_SHRINK = re.compile(r"(ffn|heads|layers)-(\d+(?:\.\d+)?)")
_PRUNE = re.compile(rf"({'|'.join(get_args(PruneMethod))})-(?:(\d+)of(\d+)|(\d+(?:\.\d+)?))")
_QUANTISE = re.compile(
    rf"(rtn|gptq|uniform)-(\d+)bit-(g\d+|row|matrix)(?:-({'|'.join(_FORMS)}))?(?:-(clip|p\d+(?:\.\d+)?))?"
)
_FORM_OF_NAMES = (
    "parts joined by + such as ffn-50, sparsegpt-50, wanda-2of4, gptq-4bit-g64, uniform-8bit-row and refit, in order"
)


class RecipeError(ValueError):
    """There is no such recipe: why, and what there is."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """Remove a share of the feed-forward neurons, of the key heads with their queries, or of the layers."""

    unit: Unit
    share: float

    @property
    def name(self) -> str:
        return f"{self.unit}-{_percent(self.share)}"


@dataclass(frozen=True, slots=True)
class Prune:
    """Set weights to zero: which, by what score, and (SparseGPT, OBC) made up for by the others."""

    method: PruneMethod
    sparsity: Sparsity

    @property
    def name(self) -> str:
        if isinstance(self.sparsity, Pattern):
            return f"{self.method}-{self.sparsity.zeros}of{self.sparsity.of}"
        return f"{self.method}-{_percent(self.sparsity.share)}"


@dataclass(frozen=True, slots=True)
class Quantise:
    """Move weights to a grid: each to its nearest level, or with the errors made up for."""

    method: QuantiseMethod
    grid: GridSpec

    @property
    def name(self) -> str:
        grid = self.grid
        is_plain_uniform = self.method == "rtn" and grid.form == "uniform"
        group = grid.group if isinstance(grid.group, str) else f"g{grid.group}"
        parts = ["uniform" if is_plain_uniform else self.method, f"{grid.bits}bit", group]
        if not is_plain_uniform:
            parts += [short for short, form in _FORMS.items() if form == grid.form]
        return "-".join([*parts, *_range_name(grid.range)])


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done, in this order: shrink, prune, quantise, refit.

    Args:
        dampening: share of a Hessian's mean diagonal that is added to it.

    Raises:
        RecipeError: when nothing is to be done, or a part cannot follow another.
    """

    shrink: tuple[Shrink, ...] = ()
    prune: Prune | None = None
    quantise: Quantise | None = None
    refit: bool = False
    dampening: float = FIRST_DAMPENING

    def __post_init__(self) -> None:
        if not (self.shrink or self.prune or self.quantise):
            raise RecipeError("the recipe does nothing: it shrinks, prunes and quantises nothing")
        units = [each.unit for each in self.shrink]
        if units != [unit for unit in get_args(Unit) if unit in units]:
            raise RecipeError("the recipe shrinks the same thing twice, or not in the order ffn, heads, layers")
        if any(not 0 < each.share < 1 for each in self.shrink):
            raise RecipeError(f"{self.name} shrinks by no part, or leaves nothing; allowed is above 0 and below 100")
        if self.refit and not (self.prune or self.quantise):
            raise RecipeError("refit needs something pruned or quantised: shrinking refits already")
        if self.prune and self.quantise and not self.quantise.grid.has_zero:
            raise RecipeError(f"{self.quantise.name} has no exact zero, which {self.prune.name} needs")
        if self.prune and self.prune.method == "obc" and isinstance(self.prune.sparsity, Pattern):
            raise RecipeError(f"{self.prune.name} is not implemented: obc takes a percentage")

    @property
    def name(self) -> str:
        names = [part.name for part in (*self.shrink, self.prune, self.quantise) if part is not None]
        return "+".join([*names, *(["refit"] if self.refit else [])])

    def share(self, unit: Unit) -> float:
        """Of such units, how great a part goes."""
        return next((each.share for each in self.shrink if each.unit == unit), 0.0)

    @property
    def needs_text(self) -> bool:
        """Whether anything depends on what passes the layers."""
        return bool(self.share("layers")) or self.needs_hessians

    @property
    def needs_hessians(self) -> bool:
        """Whether anything depends on what the matrices read."""
        prunes_by_text = self.prune is not None and self.prune.method != "magnitude"
        rounds_by_text = self.quantise is not None and self.quantise.method != "rtn"
        narrows = bool(self.share("ffn") or self.share("heads"))
        return narrows or prunes_by_text or rounds_by_text or self.refit

    def described(self) -> dict[str, Any]:
        """The recipe as plain values."""
        return {"name": self.name, "dampening": self.dampening}


def parse(name: str, *, dampening: float = FIRST_DAMPENING) -> Recipe:
    """The recipe of a name.

    Raises:
        RecipeError: for a name that has no such form, and for a recipe that is not possible.
    """
    shrink: list[Shrink] = []
    prune: Prune | None = None
    quantise: Quantise | None = None
    refit = False
    for part in name.split("+"):
        if (found := _SHRINK.fullmatch(part)) and not (prune or quantise or refit):
            shrink.append(_shrink(found))
        elif (found := _PRUNE.fullmatch(part)) and not (prune or quantise or refit):
            prune = _prune(part, found)
        elif (found := _QUANTISE.fullmatch(part)) and not (quantise or refit):
            quantise = _quantise(part, found)
        elif part == "refit" and not refit:
            refit = True
        else:
            raise RecipeError(f"{part!r} in recipe {name!r} is not known there; recipes are {_FORM_OF_NAMES}")
    return Recipe(tuple(shrink), prune, quantise, refit, dampening)


def _shrink(found: re.Match[str]) -> Shrink:
    unit: Unit = found[1]  # type: ignore[assignment]
    return Shrink(unit, float(found[2]) / PERCENT)


def _prune(part: str, found: re.Match[str]) -> Prune:
    method: PruneMethod = found[1]  # type: ignore[assignment]
    try:
        return Prune(method, Share(float(found[4]) / PERCENT) if found[4] else Pattern(int(found[2]), int(found[3])))
    except ValueError as error:
        raise RecipeError(f"{part} is not possible: {error}") from None


def _quantise(part: str, found: re.Match[str]) -> Quantise:
    is_uniform = found[1] == "uniform"
    if is_uniform and found[4]:
        raise RecipeError(f"{part} names two forms of grids")
    method: QuantiseMethod = "gptq" if found[1] == "gptq" else "rtn"
    form: Form = "uniform" if is_uniform else _FORMS.get(found[4], "affine")
    group: int | Whole = int(found[3][1:]) if found[3].startswith("g") else found[3]  # type: ignore[assignment]
    try:
        return Quantise(method, GridSpec(int(found[2]), group, form, _range(found[5])))
    except ValueError as error:
        raise RecipeError(f"{part} is not possible: {error}") from None


def _range(word: str | None) -> Range:
    if word is None:
        return FULL_RANGE
    return Searched() if word == "clip" else Percentile(float(word[1:]))


def _range_name(range: Range) -> list[str]:
    match range:
        case Maximum():
            return []
        case Percentile(percentage):
            return [f"p{percentage:.{_DIGITS}g}"]
        case Searched():
            return ["clip"]


def _percent(share: float) -> str:
    return f"{share * PERCENT:.{_DIGITS}g}"
