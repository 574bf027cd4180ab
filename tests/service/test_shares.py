"""What keys leave each other of what all of them draw on."""

from hypothesis import given
from hypothesis import strategies as st

from service.shares import Shares

MOST = 1000


def take(shares: Shares, key_id: str | None, amount: int) -> bool:
    """Whether the key could have so much more, and has it now."""
    if shares.of(key_id) + amount > shares.most_of(key_id):
        return False
    shares.add(key_id, amount)
    return True


@given(st.lists(st.integers(1, MOST)))
def test_whatever_one_key_takes_another_may_have_a_quarter(amounts: list[int]) -> None:
    shares = Shares(MOST)
    for amount in amounts:
        take(shares, "a", amount)

    assert take(shares, "b", MOST // 4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-MOST, MOST))))
def test_all_together_hold_no_more_than_there_is(changes: list[tuple[str, int]]) -> None:
    shares = Shares(MOST)
    for key_id, amount in changes:
        if amount < 0:
            shares.add(key_id, -min(-amount, shares.of(key_id)))
        else:
            take(shares, key_id, amount)

        assert sum(map(shares.of, "abc")) <= MOST


def test_callers_without_a_key_may_hold_all_of_it() -> None:
    shares = Shares(MOST)

    assert [True, False] == [take(shares, None, MOST), take(shares, None, 1)]


def test_a_key_that_holds_nothing_any_more_is_not_kept() -> None:
    shares = Shares(MOST)
    for number in range(100):
        shares.add(str(number), 1)
        shares.add(str(number), -1)

    assert {} == shares._held
