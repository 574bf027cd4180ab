"""What top-k and top-p keep of a distribution, and how far that moves it (definition 5.1, proposition 5.2).

Knows distributions and the product's filters. Always: how far a distribution moved is measured from both
distributions, never taken from the theorem that says what it must be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from model.decoding.filters import Candidates, distribution, keep_top_k, keep_top_p, leading
from model.studies.distributions import candidates, dense, row_of, total_variation

Rule = Literal["top_k", "top_p"]
LISTED = 6
"""The kept tokens that are named."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A distribution, and what it is to be cut to.

    Args:
        name: what to call it.
        whole: the tokens of positive probability.
        vocabulary: how many tokens there are.
        top_k: at least 1 each.
        top_p: in (0, 1].
    """

    name: str
    whole: Candidates
    vocabulary: int
    top_k: tuple[int, ...] = ()
    top_p: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncation:
    """One distribution p, cut to one set S.

    Args:
        case: the distribution's name.
        rule, threshold: top-k and k, or top-p and ρ.
        kept: |S|.
        token_ids: the first of S, the likeliest first.
        restricted: their probabilities in p_S = p/p(S).
        mass: p(S).
        moved: the total variation between p and p_S.
        bound: 1 - ρ for top-p, which `moved` does not exceed; top-k has none.
    """

    case: str
    rule: Rule
    threshold: float
    kept: int
    token_ids: tuple[int, ...]
    restricted: tuple[float, ...]
    mass: float
    moved: float
    bound: float | None


def _given(name: str, *probabilities: float, top_k: tuple[int, ...] = (), top_p: tuple[float, ...] = ()) -> Case:
    return Case(name, candidates(probabilities), len(probabilities), top_k, top_p)


def examples() -> tuple[Case, ...]:
    """The distributions of section 5, of the code of section 6 and of exercise 10.2, each with its thresholds."""
    section_6 = distribution(row_of((3.0, 2.5, 1.0, 0.2, -1.0, -2.0)), temperature=0.8)
    return (
        _given("remark 5.5", 0.5, 0.3, 0.2, top_p=(0.6,)),
        _given("example 5.6", 0.5, 0.2, 0.2, 0.1, top_k=(2,), top_p=(0.3, 0.6, 0.9, 1.0)),
        _given("example 5.6, a peak", 0.97, 0.01, 0.01, 0.01, top_k=(2,), top_p=(0.9,)),
        _given("example 5.6, uniform", 0.25, 0.25, 0.25, 0.25, top_k=(2,), top_p=(0.9,)),
        Case("section 6", section_6, len(section_6.token_ids), top_p=(0.95,)),
        _given("exercise 10.2", 0.4, 0.3, 0.15, 0.1, 0.05, top_p=(0.5, 0.8, 0.95)),
    )


def truncations(case: Case) -> Iterator[Truncation]:
    """The case at each of its thresholds, top-k first."""
    for k in case.top_k:
        kept = case.whole.take(keep_top_k(case.whole.logits, k))
        yield _truncation(case, "top_k", k, kept)
    for mass in case.top_p:
        yield _truncation(case, "top_p", mass, keep_top_p(case.whole, mass))


def study(cases: Sequence[Case]) -> tuple[Truncation, ...]:
    """Every case at each of its thresholds."""
    return tuple(each for case in cases for each in truncations(case))


def _truncation(case: Case, rule: Rule, threshold: float, kept: Candidates) -> Truncation:
    p, restricted = dense(case.whole, case.vocabulary), dense(kept, case.vocabulary)
    order = kept.token_ids[leading(kept.logits, LISTED)].tolist()
    return Truncation(
        case=case.name,
        rule=rule,
        threshold=threshold,
        kept=len(kept.token_ids),
        token_ids=tuple(order),
        restricted=tuple(restricted[order].tolist()),
        mass=float(p[kept.token_ids].sum()),
        moved=total_variation(p, restricted),
        bound=1.0 - threshold if rule == "top_p" else None,
    )
