"""Bits change only together with `NUMERIC_VERSION`."""

import pytest

from model.ops.native_ops import NUMERIC_VERSION, Isa, KvType
from tests.bits.conditions import available_isas
from tests.golden import digests
from tests.golden.digests import history, problems, with_digests
from tests.golden.model import FAMILIES, model_digest

PAST = {1: {"add": "a", "draw": "b"}, 2: {"add": "a", "draw": "c"}}


def test_the_present_version_is_the_last_on_record() -> None:
    assert max(history()) == NUMERIC_VERSION


@pytest.mark.parametrize("kv_type", ["int8", "float16"])
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_model_gives_the_numbers_of_this_version(family: str, isa: Isa, kv_type: KvType, threads: int) -> None:
    assert history()[NUMERIC_VERSION][f"{family}_{kv_type}"] == model_digest(family, isa, kv_type, threads=threads)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_kernel_gives_the_numbers_of_this_version_on_every_instruction_set() -> None:
    """Compiles the kernels, which takes a minute or two."""
    assert problems(history(), NUMERIC_VERSION, digests.found()) == []


def test_what_is_on_record_agrees() -> None:
    assert problems(PAST, 2, {"add": "a", "draw": "c"}) == []


def test_a_digest_that_changes_without_the_version_is_a_problem() -> None:
    (problem,) = problems(PAST, 2, {"add": "x", "draw": "c"})

    assert problem.startswith("add has changed: raise NUMERIC_VERSION")


def test_a_version_that_changes_without_a_digest_is_a_problem() -> None:
    with_the_next = {**PAST, 3: PAST[2]}

    (problem,) = problems(with_the_next, 3, PAST[2])

    assert problem.startswith("NUMERIC_VERSION has grown, but nothing has changed")


def test_a_version_that_is_not_on_record_is_a_problem() -> None:
    assert "no digests are on record for NUMERIC_VERSION 3" in problems(PAST, 3, {"add": "y", "draw": "c"})[0]


def test_a_version_that_goes_back_is_a_problem() -> None:
    assert "it only grows" in problems(PAST, 1, PAST[1])[-1]


def test_a_digest_of_something_new_is_a_problem_until_it_is_on_record() -> None:
    more = {**PAST[2], "exp": "e"}

    assert problems(PAST, 2, more) == ["a digest was added or taken away: run python -m tests.golden"]
    assert with_digests(PAST, 2, more)[2] == more


def test_a_new_version_is_put_on_record_beside_the_old_ones() -> None:
    new = {"add": "a", "draw": "z"}

    assert with_digests(PAST, 3, new) == {**PAST, 3: new}


@pytest.mark.parametrize(("version", "found"), [(2, {"add": "a", "draw": "z"}), (3, PAST[2]), (1, PAST[1])])
def test_the_record_hides_no_change(version: int, found: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"has changed|nothing has changed|only grows"):
        with_digests(PAST, version, found)
