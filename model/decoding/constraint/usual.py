"""The spellings that a tokenizer gives to texts that are all known: the ones that a model was trained on.

Always: a spelling is here only if its tokens make exactly its text; of a text that has none nothing is.
"""

from collections.abc import Iterable, Sequence

Node = dict[int, "Node"]
"""What may come next, by token id."""


class UsualSpellings:
    """A tree of token ids. Immutable."""

    def __init__(self, spellings: Iterable[Sequence[int]]) -> None:
        self._root: Node = {}
        for spelling in spellings:
            node = self._root
            for token_id in spelling:
                node = node.setdefault(token_id, {})

    def after(self, token_ids: Iterable[int]) -> Iterable[int]:
        """The tokens that go on with a usual spelling; none where the text so far is not the beginning of one."""
        node = self._root
        for token_id in token_ids:
            if token_id not in node:
                return ()
            node = node[token_id]
        return node.keys()
