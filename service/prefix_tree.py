"""Which computed prefixes the cache still holds: a tree whose nodes are pages of token ids.

Knows token ids and page numbers; knows nothing of text, tensors, requests or HTTP.
Always: tokens are compared as they are; a node's page is written no more; an unreferenced node has no referenced
descendant; only unreferenced leaves are evicted, the least recently used first; a short node is a leaf.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from model.kv_cache import PAGE_SIZE, BooksError, PagePool
from service.request import EvictionReason

Tokens = tuple[int, ...]


class Node:
    """A page of the tree: at most 32 token ids, and the sessions that end here."""

    __slots__ = ("children", "last_used", "page", "parent", "sessions", "start", "tokens")

    def __init__(self, parent: "Node | None", tokens: Tokens, page: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.page = page
        self.start = parent.end if parent else 0
        self.children: dict[Tokens, Node] = {}
        self.sessions: set[Any] = set()
        self.last_used = 0

    @property
    def end(self) -> int:
        """The position after the node's last token."""
        return self.start + len(self.tokens)

    def path(self) -> Iterator["Node"]:
        """This node and its ancestors, deepest first, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class Match:
    """How much of a prompt the tree holds: whole pages down to `node`, then `partial_tokens` of `partial`."""

    __slots__ = ("node", "partial", "partial_tokens")

    def __init__(self, node: Node, partial: Node | None = None, partial_tokens: int = 0) -> None:
        self.node = node
        self.partial = partial
        self.partial_tokens = partial_tokens

    @property
    def tokens(self) -> int:
        return self.node.end + self.partial_tokens


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading items are equal."""
    for index, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine != theirs:
            return index
    return min(len(left), len(right))


class PrefixTree:
    """Kept pages by the tokens they hold."""

    def __init__(
        self,
        pool: PagePool,
        *,
        clock: Iterator[int] | None = None,
        evict_elsewhere: Callable[[], bool] | None = None,
        most_pages: int | None = None,
        evicted: Counter[EvictionReason] | None = None,
    ) -> None:
        """Trees that share a pool count uses by one clock; the last resort evicts a page of another one.

        No more than `most_pages` are held, leased ones outside the tree too, while any of them is idle.
        `evicted` counts the tokens that were evicted, by reason.
        """
        self.root = Node(None, (), -1)
        self._pool = pool
        self._most_pages = most_pages
        self._evict_elsewhere = evict_elsewhere or (lambda: False)
        self._nodes: dict[int, Node] = {}
        self._evictable: list[tuple[int, int, Node]] = []
        self._clock = clock or count(1)
        self._order = count()
        self._evicted = Counter[EvictionReason]() if evicted is None else evicted

    @property
    def is_empty(self) -> bool:
        """Whether it keeps no page."""
        return not self._nodes

    def match(self, ids: Sequence[int]) -> Match:
        """The longest kept prefix of `ids`."""
        node, start = self.root, 0
        while child := node.children.get(tuple(ids[start : start + PAGE_SIZE])):
            if len(child.tokens) < PAGE_SIZE:
                break
            node, start = child, child.end
        rest = tuple(ids[start : start + PAGE_SIZE])
        best, length = None, 0
        for child in node.children.values():
            agreed = common_prefix(child.tokens, rest)
            if agreed > length:
                best, length = child, agreed
        return Match(node, best, length)

    def leased_nodes(self, node: Node) -> int:
        """How many nodes from the root to `node` someone refers to."""
        return sum(self._pool.references(each.page) > 0 for each in node.path())

    def lease(self, node: Node) -> int:
        """Refer to every page from the root to `node`; answers how many of them were idle."""
        woken = 0
        now = next(self._clock)
        for each in node.path():
            woken += self._pool.references(each.page) == 0
            self._pool.lease(each.page)
            each.last_used = now
        return woken

    def release(self, node: Node) -> None:
        """Refer no longer to the pages from the root to `node`."""
        now = next(self._clock)
        for each in node.path():
            self._pool.release(each.page)
            each.last_used = now
            self._offer(each)

    def take_page(self) -> int:
        """Lease a free page; where there is none, the longest unused idle leaf of this tree goes, or else of any."""
        if self._most_pages is not None and self._pool.held(self) >= self._most_pages:
            self.evict("capacity")
        if not self._pool.free and not self.evict("capacity") and not self._evict_elsewhere():
            raise BooksError("no page is idle where a promise says that one must be")
        return self._pool.take(self)

    def insert(self, parent: Node, tokens: Tokens, page: int) -> Node:
        """Keep a leased page as a child of `parent`. The caller has looked that there is no such child."""
        node = Node(parent, tokens, page)
        self._pool.keep(page)
        parent.children[tokens] = node
        self._nodes[page] = node
        node.last_used = next(self._clock)
        return node

    def covering(self, parent: Node, tokens: Tokens) -> Node | None:
        """A child of `parent` that begins with these tokens."""
        exact = parent.children.get(tokens)
        if exact is not None or len(tokens) == PAGE_SIZE:
            return exact
        return next((c for c in parent.children.values() if c.tokens[: len(tokens)] == tokens), None)

    def is_unheld(self, node: Node) -> bool:
        """Whether no sequence, no session and no longer prefix needs this node."""
        return not (node.children or node.sessions or self._pool.references(node.page))

    def detach(self, node: Node) -> int:
        """Take an unheld node out of the tree and lease its page to the caller, contents as they are."""
        self._pool.lease(node.page)
        self._remove(node)
        return node.page

    def drop_unheld(
        self, node: Node, reason: EvictionReason, *, keep: int = 0, spare: tuple[Node | None, ...] = ()
    ) -> int:
        """Drop `node` and its ancestors while nobody holds them and they reach past position `keep`.

        Stops at a node of `spare`. Answers how many tokens after `keep` were dropped.
        """
        dropped = 0
        while node.parent is not None and node not in spare and node.end > keep and self.is_unheld(node):
            dropped += node.end - max(node.start, keep)
            parent = node.parent
            self._remove(node)
            node = parent
        self.count_evicted(reason, dropped)
        return dropped

    def clear(self) -> None:
        """Drop every page that nobody leases."""
        while self.evict("explicit"):
            pass

    def evict(self, reason: EvictionReason) -> bool:
        """Drop the least recently used unreferenced leaf; whether there was one."""
        if self.oldest_use is None:
            return False
        _, _, node = heapq.heappop(self._evictable)
        self.count_evicted(reason, len(node.tokens))
        self._remove(node)
        return True

    @property
    def oldest_use(self) -> int | None:
        """When the leaf that goes next was last used; None when all leaves are referenced."""
        while self._evictable and not self._is_evictable(self._evictable[0]):
            heapq.heappop(self._evictable)
        return self._evictable[0][0] if self._evictable else None

    def count_evicted(self, reason: EvictionReason, tokens: int) -> None:
        if tokens:
            self._evicted[reason] += tokens

    def check(self) -> None:
        """Raise BooksError unless pages and nodes agree and the tree's shape holds."""
        seen: set[int] = set()
        stack = [self.root]
        while stack:
            node = stack.pop()
            for tokens, child in node.children.items():
                self._check_child(node, tokens, child)
                seen.add(child.page)
                stack.append(child)
        if seen != self._nodes.keys():
            raise BooksError(f"the tree reaches {len(seen)} pages and keeps {len(self._nodes)}")

    def _check_child(self, node: Node, tokens: Tokens, child: Node) -> None:
        if child.parent is not node or child.tokens != tokens or self._nodes.get(child.page) is not child:
            raise BooksError(f"page {child.page} stands in the tree under a name that is not its own")
        if node is not self.root and len(node.tokens) < PAGE_SIZE:
            raise BooksError(f"the short node of page {node.page} has children")
        if node is not self.root and self._pool.references(node.page) < self._pool.references(child.page):
            raise BooksError(f"page {child.page} is leased by someone who does not lease its parent")

    def _offer(self, node: Node) -> None:
        if node is self.root or node.children or self._pool.references(node.page):
            return
        heapq.heappush(self._evictable, (node.last_used, next(self._order), node))
        if len(self._evictable) > 2 * len(self._nodes) + 64:
            self._evictable = [entry for entry in self._evictable if self._is_evictable(entry)]
            heapq.heapify(self._evictable)

    def _is_evictable(self, entry: tuple[int, int, Node]) -> bool:
        last_used, _, node = entry
        return (
            self._nodes.get(node.page) is node
            and node.last_used == last_used
            and not node.children
            and not self._pool.references(node.page)
        )

    def _remove(self, node: Node) -> None:
        parent = node.parent
        if parent is None or node.children:
            raise BooksError("only leaves leave the tree")
        del parent.children[node.tokens]
        del self._nodes[node.page]
        self._pool.forget(node.page)
        for session in node.sessions:
            session.node = parent
        parent.sessions |= node.sessions
        node.sessions = set()
        self._offer(parent)
