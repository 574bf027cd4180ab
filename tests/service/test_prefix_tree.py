"""The prefix tree: matching, eviction, and who holds what."""

import random
import sys
from collections import Counter

import pytest

from model.kv_cache import PAGE_SIZE, BooksError, PagePool
from service.prefix_tree import Node, PrefixTree, common_prefix
from service.request import EvictionReason


def grow(tree: PrefixTree, ids: list[int]) -> Node:
    """Keep these ids as idle nodes, as a finished sequence does."""
    node, start = tree.root, 0
    pages: list[int] = []
    while start < len(ids):
        tokens = tuple(ids[start : start + PAGE_SIZE])
        child = tree.covering(node, tokens)
        if child is None:
            child = tree.insert(node, tokens, tree.take_page())
            pages.append(child.page)
        node, start = child, start + PAGE_SIZE
    release_new(tree, node, pages)
    return node


def release_new(tree: PrefixTree, node: Node, pages: list[int]) -> None:
    for each in node.path():
        if each.page not in pages:
            tree._pool.lease(each.page)
    tree.release(node)


def make_tree(pages: int = 64, evicted: Counter[EvictionReason] | None = None) -> tuple[PagePool, PrefixTree]:
    pool = PagePool(pages)
    return pool, PrefixTree(pool, evicted=evicted)


def test_the_longest_common_prefix_is_matched_token_by_token() -> None:
    """Against a comparison of every pair, over random edits of shared texts."""
    _, tree = make_tree(400)
    draw = random.Random(5)
    kept: list[list[int]] = []
    for _ in range(40):
        base = draw.choice(kept)[: draw.randint(0, 150)] if kept else []
        ids = base + [draw.randint(0, 2) for _ in range(draw.randint(1, 70))]
        node = tree.match(ids)
        assert node.tokens == max((common_prefix(each, ids) for each in kept), default=0)
        grow(tree, ids)
        tree.check()
        kept.append(ids)


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65])
def test_a_match_ends_exactly_where_the_ids_first_differ(length: int) -> None:
    _, tree = make_tree()
    grow(tree, list(range(100)))

    match = tree.match([*range(length), 999, *range(length + 1, 100)])

    assert match.tokens == length


@pytest.mark.parametrize("length", [1, 31, 32, 33])
def test_ids_of_equal_hashes_are_told_apart(length: int) -> None:
    """Pages are found by the hash of their ids and believed by the ids themselves."""
    _, tree = make_tree()
    kept, other = [7] * length, [7 + sys.hash_info.modulus] * length
    assert hash(tuple(kept)) == hash(tuple(other))
    grow(tree, kept)

    assert (0, length) == (tree.match(other).tokens, tree.match(kept).tokens)


def test_the_least_recently_used_leaf_is_evicted_first() -> None:
    evicted = Counter[EvictionReason]()
    pool, tree = make_tree(3, evicted)
    grow(tree, [1] * 32)
    grow(tree, [2] * 32)
    grow(tree, [3] * 32)
    tree.lease(tree.match([1] * 32).node)
    tree.release(tree.match([1] * 32).node)

    pool.release(tree.take_page())

    assert [tree.match([n] * 32).tokens for n in (1, 2, 3)] == [32, 0, 32]
    assert {"capacity": 32} == evicted


def test_a_parent_is_evicted_only_after_its_children() -> None:
    _, tree = make_tree(3)
    grow(tree, list(range(96)))

    tree.take_page()

    assert tree.match(list(range(96))).tokens == 64


def test_a_leased_node_is_never_evicted() -> None:
    _, tree = make_tree(2)
    tree.lease(grow(tree, [1] * 32))
    grow(tree, [2] * 32)

    tree.take_page()

    assert tree.match([1] * 32).tokens == 32
    with pytest.raises(BooksError):
        tree.take_page()


def test_dropping_stops_where_someone_else_holds_on() -> None:
    _, tree = make_tree()
    long = grow(tree, list(range(96)))
    grow(tree, [*range(64), *[7] * 32])

    dropped = tree.drop_unheld(long, "edit")

    assert dropped == 32
    assert tree.match(list(range(96))).tokens == 64


def test_dropping_counts_only_tokens_past_what_is_kept() -> None:
    _, tree = make_tree()

    dropped = tree.drop_unheld(grow(tree, list(range(90))), "edit", keep=40)

    assert dropped == 50
    assert tree.match(list(range(90))).tokens == 32


def test_sessions_of_an_evicted_node_fall_back_to_its_parent() -> None:
    class Name:
        node: Node

    _, tree = make_tree(2)
    session, leaf = Name(), grow(tree, list(range(64)))
    session.node = leaf
    leaf.sessions.add(session)

    tree.take_page()

    assert session.node.end == 32
    assert session in session.node.sessions


def test_the_list_of_leaves_to_evict_does_not_grow_without_end() -> None:
    _, tree = make_tree(8)
    node = grow(tree, [1] * 32)
    for _ in range(1000):
        tree.lease(node)
        tree.release(node)

    assert len(tree._evictable) < 100
