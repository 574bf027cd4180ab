"""Texts, lengths and times of a load test follow from their names alone."""

import statistics

import pytest

from service.cli.load_prompts import Length, arrivals, edited, prompt_of


def test_a_prompt_has_a_word_for_each_token() -> None:
    assert 30 == len(prompt_of(30, "any").split())


def test_a_prompt_begins_with_its_prefix_and_counts_it() -> None:
    prompt = prompt_of(30, "any", prefix=prompt_of(10, "shared"))

    assert prompt.startswith(prompt_of(10, "shared"))
    assert 30 == len(prompt.split())


def test_a_fixed_length_is_drawn_always() -> None:
    assert {7} == {Length(7, 7).draw(str(name)) for name in range(20)}


def test_each_length_of_a_range_is_drawn_about_as_often() -> None:
    drawn = [Length(2, 4).draw(str(name)) for name in range(300)]

    assert min(drawn.count(length) for length in (2, 3, 4)) > 75


def test_an_edit_changes_exactly_one_word_and_never_the_first() -> None:
    before = prompt_of(12, "any")

    changed = [
        place
        for name in range(50)
        for place, (old, new) in enumerate(zip(before.split(), edited(before, str(name)).split(), strict=True))
        if old != new
    ]

    assert 50 == len(changed)
    assert set(range(1, 12)) == set(changed)


def test_arrivals_are_those_of_a_poisson_process() -> None:
    times = list(arrivals(4.0, 4000, "any"))
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]

    assert 0.25 == pytest.approx(statistics.mean(gaps), rel=0.05)
    assert 0.25 == pytest.approx(statistics.stdev(gaps), rel=0.07)


def test_a_name_fixes_the_arrivals() -> None:
    assert list(arrivals(2.0, 5, "a")) == list(arrivals(2.0, 5, "a")) != list(arrivals(2.0, 5, "b"))
