"""Pages: free, idle and leased, and what was promised."""

import pytest

from model.kv_cache import BooksError, PagePool, pages_for, reservation


def counts(pool: PagePool) -> tuple[int, int, int]:
    pool.check()
    return pool.free, pool.idle, pool.leased


def test_a_kept_page_goes_idle_and_any_other_goes_free() -> None:
    pool = PagePool(4)
    kept, lost = pool.take(), pool.take()
    pool.keep(kept)
    assert counts(pool) == (2, 0, 2)

    pool.release(kept)
    pool.release(lost)

    assert counts(pool) == (3, 1, 0)


def test_a_page_is_leased_until_its_last_reference_goes() -> None:
    pool = PagePool(2)
    page = pool.take()
    pool.lease(page)
    pool.release(page)
    assert counts(pool) == (1, 0, 1)

    pool.release(page)

    assert counts(pool) == (2, 0, 0)


def test_a_forgotten_idle_page_is_free() -> None:
    pool = PagePool(2)
    page = pool.take()
    pool.keep(page)
    pool.release(page)

    pool.forget(page)

    assert counts(pool) == (2, 0, 0)


def test_promises_are_made_of_what_is_free_or_idle_and_not_promised() -> None:
    pool = PagePool(5)
    promise = pool.promise(3)
    assert pool.available == 2

    pool.take()
    promise.spend()
    assert (pool.available, promise.remaining) == (2, 2)

    promise.withdraw()
    assert pool.available == 4


@pytest.mark.parametrize("mistake", ["release", "lease", "keep", "forget"])
def test_a_free_page_can_only_be_taken(mistake: str) -> None:
    pool = PagePool(1)

    with pytest.raises(BooksError):
        getattr(pool, mistake)(0)


def test_more_than_is_available_is_not_promised() -> None:
    pool = PagePool(3)
    pool.promise(2)

    with pytest.raises(BooksError):
        pool.promise(2)


def test_a_promise_is_not_overspent() -> None:
    promise = PagePool(3).promise(1)
    promise.spend()

    with pytest.raises(BooksError):
        promise.spend()


def test_the_count_anew_finds_a_lost_page() -> None:
    pool = PagePool(3)
    pool._references[pool.take()] = 0

    with pytest.raises(BooksError, match="lost"):
        pool.check()


@pytest.mark.parametrize(("positions", "pages"), [(0, 0), (1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_pages_hold_32_positions(positions: int, pages: int) -> None:
    assert pages_for(positions) == pages


def test_a_reservation_counts_a_tail_copy_for_every_row() -> None:
    assert reservation(prompt_tokens=65, max_new_tokens=33, rows=2, shared=1) == 3 - 1 + 2 * (2 + 1)


def test_a_page_is_held_by_whom_it_was_taken_for_until_it_is_free() -> None:
    pool = PagePool(4)
    kept, passing = pool.take("a"), pool.take("a")
    pool.take("b")
    pool.keep(kept)
    for page in (kept, passing):
        pool.release(page)
    assert (1, 1) == (pool.held("a"), pool.held("b"))

    pool.forget(kept)

    assert (0, 1) == (pool.held("a"), pool.held("b"))
    pool.check()
