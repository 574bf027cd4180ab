"""The names of recipes, and what they mean."""

import pytest

from model.compression.grids import GridSpec
from model.compression.ranges import Percentile, Searched
from model.compression.recipe import RECIPES, Prune, Quantise, Recipe, RecipeError, Shrink, parse
from model.compression.selection import Pattern, Share


@pytest.mark.parametrize(
    "name", [*RECIPES, "obc-12.5", "gptq-2bit-matrix-sym-p99.9", "wanda-33.3333333", "ffn-50+heads-33+layers-10"]
)
def test_a_name_comes_back_from_its_recipe(name: str) -> None:
    assert name == parse(name).name


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("rtn-4bit-g64", Recipe(quantise=Quantise("rtn", GridSpec(4, 64)))),
        ("gptq-3bit-row-min-clip", Recipe(quantise=Quantise("gptq", GridSpec(3, "row", "minimum", Searched())))),
        ("uniform-8bit-matrix", Recipe(quantise=Quantise("rtn", GridSpec(8, "matrix", "uniform")))),
        ("rtn-4bit-g32-p99", Recipe(quantise=Quantise("rtn", GridSpec(4, 32, range=Percentile(99))))),
        ("wanda-2of4", Recipe(prune=Prune("wanda", Pattern(2, 4)))),
        ("magnitude-12.5+refit", Recipe(prune=Prune("magnitude", Share(0.125)), refit=True)),
        ("ffn-50", Recipe(shrink=(Shrink("ffn", 0.5),))),
    ],
)
def test_what_a_name_means(name: str, recipe: Recipe) -> None:
    assert recipe == parse(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is not known there"),
        ("gptq", "is not known there"),
        ("rtn-4bit-g64+wanda-50", "'wanda-50' in recipe"),
        ("magnitude-50+magnitude-50", "is not known there"),
        ("layers-10+ffn-50", "not in the order ffn, heads, layers"),
        ("ffn-50+ffn-50", "the same thing twice"),
        ("ffn-100", "leaves nothing"),
        ("ffn-0", "by no part"),
        ("rtn-9bit-g64", "has 1 to 8"),
        ("rtn-1bit-g64-sym", "has 2 to 8"),
        ("rtn-4bit-g64-p50", "must be above 50"),
        ("uniform-4bit-row-sym", "two forms"),
        ("magnitude-150", "must be 0 to 1"),
        ("wanda-5of4", "does not exist"),
        ("obc-2of4", "obc takes a percentage"),
        ("magnitude-50+uniform-4bit-row", "has no exact zero"),
        ("refit", "does nothing"),
        ("ffn-50+refit", "refits already"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        parse(name)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("rtn-4bit-g64", (False, False)),
        ("magnitude-50+rtn-4bit-row", (False, False)),
        ("layers-10", (True, False)),
        ("layers-10+rtn-4bit-g64", (True, False)),
        ("wanda-50", (True, True)),
        ("gptq-4bit-g64", (True, True)),
        ("magnitude-50+refit", (True, True)),
        ("heads-33", (True, True)),
    ],
)
def test_only_what_looks_at_inputs_needs_text(name: str, needs: tuple[bool, bool]) -> None:
    recipe = parse(name)

    assert needs == (recipe.needs_text, recipe.needs_hessians)
