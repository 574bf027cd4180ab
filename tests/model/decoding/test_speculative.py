"""Guesses: where they are found, how far they are trusted, and how many of them are worth a row."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from model.decoding.speculative import (
    CANDIDATES,
    MOST_GUESSES,
    Acceptance,
    Guesses,
    PromptLookup,
    WatchedLookup,
    allot,
    expected_gain,
)


def found(ids: Sequence[int], most: int = 4) -> tuple[tuple[int, ...], int]:
    lookup = PromptLookup()
    lookup.extend(ids)
    return lookup.find(most)


def slow_find(ids: Sequence[int], most: int) -> tuple[tuple[int, ...], int]:
    """Every earlier place is compared; the longest equal end wins, of equal ones the last."""
    best = matched = 0
    for place in range(1, len(ids)):
        equal = next((n for n in range(place) if ids[place - 1 - n] != ids[-1 - n]), place)
        if equal >= max(2, matched):
            best, matched = place, equal
    if matched < 2:
        return (), 0
    ids = list(ids)
    for number in range(most):
        ids.append(ids[best + number])
    return tuple(ids[-most:]), matched


@pytest.mark.parametrize("ids", [(), (1,), (1, 1), (1, 2, 3, 4), (1, 2, 3, 9, 3)])
def test_nothing_is_found_before_two_tokens_come_again(ids: tuple[int, ...]) -> None:
    assert ((), 0) == found(ids)


def test_what_followed_the_same_tokens_is_guessed() -> None:
    assert ((7, 8, 9, 5), 2) == found((5, 6, 7, 8, 9, 5, 6))


def test_the_longest_equal_end_wins_over_a_more_recent_one() -> None:
    assert ((40,), 3) == found((1, 2, 3, 40, 9, 2, 3, 50, 8, 1, 2, 3), most=1)


def test_of_equally_long_ends_the_most_recent_wins() -> None:
    assert ((50,), 2) == found((2, 3, 40, 9, 2, 3, 50, 8, 2, 3), most=1)


def test_where_the_ids_end_the_guess_follows_itself() -> None:
    assert ((2, 1, 2, 1), 3) == found((1, 2, 1, 2, 1))


def test_a_look_up_equals_a_search_of_all_places() -> None:
    draw = random.Random(0)
    for _ in range(300):
        ids = [draw.randrange(6) for _ in range(draw.randrange(40))]
        if sum(pair == tuple(ids[-2:]) for pair in pairwise(ids)) <= CANDIDATES:
            assert slow_find(ids, 5) == found(ids, 5)


def test_tokens_may_come_one_by_one() -> None:
    ids = [random.Random(1).randrange(5) for _ in range(200)]
    lookup = PromptLookup()
    for token_id in ids:
        lookup.extend([token_id])

    assert found(ids) == lookup.find(4)


def test_a_token_costs_the_same_however_many_there_are() -> None:
    """Comparisons are counted: each place is compared over few tokens, and few places are compared."""
    compared = 0

    class Counting(int):
        def __ne__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) != other

        __hash__ = int.__hash__

    lookup = PromptLookup()
    lookup.extend([Counting(number % 2) for number in range(8000)])
    lookup.find(4)

    assert 0 < compared <= CANDIDATES * 32


def test_acceptance_begins_where_it_is_expected_and_follows_what_is_seen() -> None:
    acceptance = Acceptance(0.8)
    before = acceptance.rate
    for _ in range(50):
        acceptance.observe(False)

    assert 0.8 == before
    assert acceptance.rate < 0.1


def test_acceptance_forgets() -> None:
    acceptance = Acceptance(0.5)
    for held in [False] * 100 + [True] * 60:
        acceptance.observe(held)

    assert acceptance.rate > 0.85


def test_the_chance_of_a_guess_is_that_of_all_before_it_too() -> None:
    assert (0.5, 0.25, 0.125) == Guesses.made((1, 2, 3), (0.5, 0.5, 0.5)).chances


def followed(ids: Sequence[int], start: int) -> WatchedLookup:
    """A look-up that guessed at every place from `start` on and ran none of its guesses."""
    lookup = WatchedLookup()
    for end in range(start, len(ids) + 1):
        lookup.follow(ids[:end], end)
        lookup.guess()
    return lookup


def test_a_long_text_is_followed_in_pieces_and_guessed_once_all_of_it_was() -> None:
    ids = [1, 2, 3] * 400
    lookup = WatchedLookup()

    assert (1000, 200) == (lookup.follow(ids, 1000), len(ids) - 1000)
    assert () == lookup.guess().tokens
    assert 200 == lookup.follow(ids, 1000)
    assert (1, 2, 3) == lookup.guess().tokens[:3]


def test_guesses_that_nobody_ran_teach_too() -> None:
    pattern = [*range(10, 30)]
    always = followed(pattern * 6, 1).guess().chances[0]
    draw = random.Random(2)
    never = followed([token for _ in range(80) for token in (1, 2, draw.randrange(3, 99))][:-1], 1).guess().chances[0]

    assert always > 0.9
    assert never < 0.15


def test_no_more_is_guessed_than_may_run() -> None:
    assert MOST_GUESSES == len(followed([*range(10)] * 9, 80).guess().tokens)


def flat(rows: float) -> float:
    """Rows are nearly free beside the first."""
    return 1.0 + 0.1 * (rows - 1)


def steep(rows: float) -> float:
    """Every row costs as much as the first."""
    return rows


def test_likely_guesses_run_where_rows_are_cheap() -> None:
    assert [5] == allot([[0.95, 0.9, 0.85, 0.8, 0.75]], 1, flat)


def test_unlikely_guesses_do_not_run() -> None:
    assert [0] == allot([[0.05, 0.01]], 1, flat)


def test_nothing_runs_where_rows_are_dear() -> None:
    assert [0] == allot([[0.9, 0.8]], 1, steep)


def test_guesses_stop_where_their_chance_no_longer_pays() -> None:
    chances = [0.9**number for number in range(1, 16)]
    (count,) = allot([chances], 1, flat)

    assert 3 <= count < 15
    best = max(range(16), key=lambda n: expected_gain(chances[:n], 1, flat(1), flat(1 + n)))
    assert best == count


def test_the_likelier_sequence_is_guessed_for_first() -> None:
    likely, unlikely = allot([[0.9, 0.8, 0.7], [0.2, 0.04]], 2, flat)

    assert likely > unlikely


def test_guesses_fade_out_with_the_number_of_texts() -> None:
    """One text gains, all others wait."""
    counts = [allot([[0.95**number for number in range(1, 16)]], texts, flat)[0] for texts in (1, 2, 4, 8, 16, 32)]

    assert sorted(counts, reverse=True) == counts
    assert counts[0] > 8
    assert 0 == counts[-1]


def test_all_texts_that_repeat_gain_together() -> None:
    chances = [0.95**number for number in range(1, 16)]

    assert min(allot([chances] * 4, 4, flat)) >= 2
