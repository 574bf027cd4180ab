"""The pages of one sequence: where its keys and values lie, and which of them the prefix tree knows.

Knows token ids and page numbers; knows nothing of requests, text or tensors.
Always: a page that is written belongs to one lease only and is not in the tree; the first `published` pages are the
nodes from the root to `node`; every page of the lease is referred to once by it.
"""

from collections.abc import Sequence

from model.batch import PageCopy
from model.kv_cache import PAGE_SIZE, PagePool, Promise, pages_for
from service.prefix_tree import Match, Node, PrefixTree


class Lease:
    """The page table of one sequence, and the `length` positions computed in it."""

    def __init__(self, pool: PagePool, tree: PrefixTree, promise: Promise, copies: list[PageCopy]) -> None:
        self._pool = pool
        self._tree = tree
        self._promise = promise
        self._copies = copies
        self.node: Node = tree.root
        self.published = 0
        self.pages: list[int] = []
        self.length = 0

    def attach(self, match: Match, *, take_over: bool) -> None:
        """Begin with what the tree holds; a partly matching page is taken over, or its positions are copied."""
        for _ in range(self._tree.lease(match.node)):
            self._promise.spend()
        self.node = match.node
        self.pages = [node.page for node in match.node.path()][::-1]
        self.published = len(self.pages)
        self.length = match.tokens
        if match.partial is None:
            return
        if take_over:
            self._promise.spend()
            self.pages.append(self._tree.detach(match.partial))
        else:
            self._append_copy(match.partial.page, match.partial_tokens)

    def extend(self, positions: int) -> None:
        """Have pages for this many positions."""
        while len(self.pages) < pages_for(positions):
            self._promise.spend()
            self.pages.append(self._tree.take_page())

    def fork(self) -> "Lease":
        """A second lease on the same contents: whole pages are shared, a partial tail is copied."""
        child = self.empty()
        whole = self.length // PAGE_SIZE
        child.node, child.published, child.length = self.node, self.published, self.length
        child.pages = self.pages[:whole]
        for page in child.pages:
            self._pool.lease(page)
        if self.length % PAGE_SIZE:
            child._append_copy(self.pages[whole], self.length % PAGE_SIZE)
        return child

    def publish(self, ids: Sequence[int]) -> None:
        """Put every whole page into the tree. `ids` are the sequence's token ids, position by position."""
        for index in range(self.published, self.length // PAGE_SIZE):
            tokens = tuple(ids[index * PAGE_SIZE : (index + 1) * PAGE_SIZE])
            self._publish_page(index, tokens)

    def publish_tail(self, ids: Sequence[int]) -> None:
        """Put the rest into the tree as a short leaf. The lease ends after this: a short node grows no more."""
        self.publish(ids)
        tokens = tuple(ids[self.published * PAGE_SIZE : self.length])
        if tokens:
            self._publish_page(self.published, tokens)

    def empty(self) -> "Lease":
        """A lease of the same request that holds nothing yet."""
        return Lease(self._pool, self._tree, self._promise, self._copies)

    def truncate(self, positions: int) -> None:
        """Keep at most so many positions, none of them fewer than are published."""
        self.length = min(self.length, positions)
        kept = max(pages_for(self.length), self.published)
        for page in self.pages[kept:]:
            self._give_back(page)
        del self.pages[kept:]

    def prune(self) -> None:
        """Give every page back, while the request goes on: those that become free return to its promise."""
        for page in self.pages[self.published :]:
            self._give_back(page)
        self._tree.release(self.node)
        self.node, self.published, self.pages, self.length = self._tree.root, 0, [], 0

    def release(self) -> None:
        """Give every page back."""
        for page in self.pages[self.published :]:
            self._pool.release(page)
        self._tree.release(self.node)
        self.node, self.published, self.pages, self.length = self._tree.root, 0, [], 0

    def _publish_page(self, index: int, tokens: tuple[int, ...]) -> None:
        page = self.pages[index]
        twin = self._tree.covering(self.node, tokens)
        if twin is None:
            self.node = self._tree.insert(self.node, tokens, page)
        else:
            self._pool.lease(twin.page)
            self._pool.release(page)
            self.pages[index] = twin.page
            self.node = twin
        self.published += 1

    def _give_back(self, page: int) -> None:
        self._pool.release(page)
        if not self._pool.references(page):
            self._promise.refund()

    def _append_copy(self, source: int, positions: int) -> None:
        self._promise.spend()
        target = self._tree.take_page()
        self._copies.append(PageCopy(source, target, positions))
        self.pages.append(target)
