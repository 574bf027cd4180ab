"""Arithmetic on page numbers: which page is free, leased or idle. The op set owns the storage behind them.

Knows no tensors, tokens or requests. A page holds the keys and values of `PAGE_SIZE` positions.
Always: free + idle + leased = total, and pages promised but not yet taken never exceed free + idle.
"""

from collections import Counter
from collections.abc import Hashable
from heapq import heappop, heappush

PAGE_SIZE = 32


class BooksError(RuntimeError):
    """Pages or tokens were lost, counted twice or taken beyond a promise: a fault of ours, never of a caller."""


def pages_for(positions: int) -> int:
    """How many pages hold this many positions."""
    return -(-positions // PAGE_SIZE)


def reservation(prompt_tokens: int, max_new_tokens: int, rows: int, shared: int = 0) -> int:
    """Pages that a request may come to need beside the `shared` ones that others lease already.

    Every row may copy the prompt's tail page once and then fill pages of its own.
    """
    return pages_for(prompt_tokens) - shared + rows * (pages_for(max_new_tokens) + 1)


class PagePool:
    """The state of every page.

    A page is *leased* while anyone refers to it, *idle* while it is only kept for reuse, and *free* otherwise.
    """

    def __init__(self, total: int) -> None:
        # A heap: pages that follow one another are handed out together, which op sets read without gathering.
        self._free = list(range(total))
        self._references = [0] * total
        self._kept = [False] * total
        self._owners: list[Hashable] = [None] * total
        self._held: Counter[Hashable] = Counter()
        self._idle = 0
        self._promised = 0

    @property
    def total(self) -> int:
        return len(self._references)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        return self._idle

    @property
    def leased(self) -> int:
        return self.total - self.free - self.idle

    @property
    def available(self) -> int:
        """Pages that a new promise may still be made of."""
        return self.free + self.idle - self._promised

    @property
    def promised(self) -> int:
        return self._promised

    def references(self, page: int) -> int:
        return self._references[page]

    def held(self, owner: Hashable) -> int:
        """How many leased and idle pages were taken for this owner."""
        return self._held[owner]

    def take(self, owner: Hashable = None) -> int:
        """Lease a free page. Raises BooksError when none is free: whoever calls evicts an idle page first."""
        if not self._free:
            raise BooksError("no page is free")
        page = heappop(self._free)
        self._references[page] = 1
        self._owners[page] = owner
        self._held[owner] += 1
        return page

    def lease(self, page: int) -> None:
        """Refer once more to a leased or an idle page."""
        if not self._references[page]:
            if not self._kept[page]:
                raise BooksError(f"page {page} is free and cannot be leased")
            self._idle -= 1
        self._references[page] += 1

    def release(self, page: int) -> None:
        """Refer once less; the last reference leaves the page idle when it is kept, else free."""
        if not self._references[page]:
            raise BooksError(f"page {page} is released more often than it was leased")
        self._references[page] -= 1
        if self._references[page]:
            return
        if self._kept[page]:
            self._idle += 1
        else:
            self._free_page(page)

    def keep(self, page: int) -> None:
        """Keep a leased page for reuse once nobody refers to it."""
        if self._kept[page] or not self._references[page]:
            raise BooksError(f"page {page} is kept already, or nobody leases it")
        self._kept[page] = True

    def forget(self, page: int) -> None:
        """Keep the page no longer; an idle one becomes free."""
        if not self._kept[page]:
            raise BooksError(f"page {page} is not kept")
        self._kept[page] = False
        if not self._references[page]:
            self._idle -= 1
            self._free_page(page)

    def _free_page(self, page: int) -> None:
        self._held[self._owners[page]] -= 1
        heappush(self._free, page)

    def promise(self, count: int) -> "Promise":
        """Set pages aside. Raises BooksError beyond what is available."""
        if count > self.available:
            raise BooksError(f"{count} pages promised where {self.available} are available")
        self._promised += count
        return Promise(self, count)

    def check(self) -> None:
        """Count every page anew. Raises BooksError when a running count is wrong."""
        free = set(self._free)
        idle = sum(kept and not count for kept, count in zip(self._kept, self._references, strict=True))
        for page, count in enumerate(self._references):
            if (page in free) != (not count and not self._kept[page]):
                raise BooksError(f"page {page} is lost, or free and in use at once")
        if len(free) != len(self._free) or idle != self._idle:
            raise BooksError(f"{len(self._free)} free and {self._idle} idle pages are {len(free)} and {idle}")
        held = Counter(owner for page, owner in enumerate(self._owners) if page not in free)
        if held != self._held:
            raise BooksError(f"{self._held.total()} pages are held by owners, and {held.total()} are not free")
        if self._promised < 0 or self.available < 0:
            raise BooksError(f"{self._promised} pages are promised where {self.free + self.idle} could be")


class Promise:
    """Pages that one request may still take."""

    def __init__(self, pool: PagePool, count: int) -> None:
        self._pool = pool
        self.remaining = count

    def spend(self) -> None:
        """One page went from free or idle to leased on this promise."""
        if not self.remaining:
            raise BooksError("a request takes more pages than it was promised")
        self.remaining -= 1
        self._pool._promised -= 1

    def refund(self) -> None:
        """A page that was taken on this promise is free again, and may be taken anew."""
        self.remaining += 1
        self._pool._promised += 1

    def withdraw(self) -> None:
        """Give back what was not taken."""
        self._pool._promised -= self.remaining
        self.remaining = 0
