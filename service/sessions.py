"""Sessions: names for sequences that stay warm. Each is token ids and a node of the prefix tree, and owns no page.

Knows token ids, nodes and times that it is given; knows nothing of text, tensors or HTTP.
Always: a session that is not busy is entered at exactly one node, the deepest that still holds a prefix of its ids.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from service.prefix_tree import Match, Node, PrefixTree, common_prefix
from service.request import CacheReason, EvictionReason, SessionInfo


class Session:
    """What one name stands for between turns."""

    __slots__ = ("busy", "computed", "id", "ids", "last_used", "node", "parent", "prompt_tokens")

    def __init__(self, session_id: str, node: Node, now: float, parent: str | None = None) -> None:
        self.id = session_id
        self.ids: tuple[int, ...] = ()
        """Prompt and answer of the last turn."""
        self.prompt_tokens = 0
        self.computed = 0
        """How many of `ids` ran."""
        self.node = node
        self.busy = False
        self.last_used = now
        self.parent = parent


@dataclass(frozen=True, slots=True)
class Turn:
    """How a prompt continues a session, and what that dropped."""

    take_over: bool
    evicted_tokens: int = 0
    first_changed_token: int | None = None
    reason: CacheReason = "cold"


def without_session(tree: PrefixTree, match: Match) -> Turn:
    """A prompt that no session vouches for: a tail is taken over only when it is matched whole and unheld."""
    partial = match.partial
    whole = partial is not None and match.partial_tokens == len(partial.tokens) and tree.is_unheld(partial)
    return Turn(take_over=whole, reason="prefix" if match.tokens else "cold")


class Sessions:
    """All sessions, least recently used first."""

    def __init__(self, tree: PrefixTree, *, page_bytes: int, ttl_s: float, limit: int) -> None:
        self._tree = tree
        self._page_bytes = page_bytes
        self._ttl_s = ttl_s
        self._limit = limit
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        return not self._sessions

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def open(self, session_id: str, now: float) -> Session:
        """The session of this name, made when it is unknown, and busy from now on."""
        session = self._sessions.get(session_id)
        if session is None:
            self._make_room()
            session = self._sessions[session_id] = Session(session_id, self._tree.root, now)
            session.node.sessions.add(session)
        session.busy = True
        self._touch(session, now)
        return session

    def close(self, session: Session, now: float) -> None:
        """The turn ended."""
        session.busy = False
        self._touch(session, now)

    def turn(self, session: Session, prompt: Sequence[int], match: Match) -> Turn:
        """Leave the session's old path for `prompt`, dropping at once what differs and nobody else holds."""
        partial, old = match.partial, session.node
        common = common_prefix(session.ids, prompt)
        reason = self._reason(session, prompt, common, match)
        old.sessions.discard(session)
        session.node = self._tree.root
        # The old node may be longer than the session's ids, and then the match may reach past them.
        evicted = self._tree.drop_unheld(old, "edit", keep=common, spare=(match.node, partial))
        take_over = without_session(self._tree, match).take_over
        if not take_over and partial is not None and partial in old.path() and self._tree.is_unheld(partial):
            take_over = True
            overwritten = partial.end - max(common, match.tokens)
            self._tree.count_evicted("edit", overwritten)
            evicted += overwritten
        changed = common if common < len(session.ids) else None
        return Turn(take_over, evicted, changed, reason)

    def settle(self, session: Session, ids: Sequence[int], prompt_tokens: int, computed: int, node: Node) -> None:
        """Remember a turn: its prompt and answer, of which the first `computed` ids ran, kept down to `node`."""
        session.node.sessions.discard(session)
        session.ids, session.prompt_tokens, session.computed, session.node = tuple(ids), prompt_tokens, computed, node
        node.sessions.add(session)

    def describe(self, session: Session, now: float) -> SessionInfo:
        return SessionInfo(
            id=session.id,
            tokens=min(session.node.end, session.computed),
            bytes=self._page_bytes * sum(1 for _ in session.node.path()),
            idle_s=0.0 if session.busy else now - session.last_used,
            busy=session.busy,
            parent=session.parent,
        )

    def describe_all(self, now: float) -> tuple[SessionInfo, ...]:
        return tuple(self.describe(session, now) for session in self._sessions.values())

    def fork(self, session: Session, new_id: str, now: float) -> Session:
        """A second name for the same ids and node; no page is copied. The first one counts as used."""
        self._touch(session, now)
        child = Session(new_id, session.node, now, parent=session.id)
        self.settle(child, session.ids, session.prompt_tokens, session.computed, session.node)
        # The child holds on to the node, so that its source may be the one to go.
        self._make_room()
        self._sessions[new_id] = child
        return child

    def forget(self, session: Session, reason: EvictionReason) -> None:
        """Remove the name, and the pages that only it held."""
        del self._sessions[session.id]
        session.node.sessions.discard(session)
        self._tree.drop_unheld(session.node, reason)

    def expire(self, now: float) -> None:
        """Forget what nobody used for the time to live."""
        while stale := next((s for s in self._sessions.values() if not s.busy), None):
            if now - stale.last_used <= self._ttl_s:
                return
            self.forget(stale, "ttl")

    def forget_idle(self, reason: EvictionReason) -> None:
        """Forget every session that no turn runs in."""
        for session in [each for each in self._sessions.values() if not each.busy]:
            self.forget(session, reason)

    def busy_ids(self) -> set[str]:
        return {session.id for session in self._sessions.values() if session.busy}

    def _touch(self, session: Session, now: float) -> None:
        session.last_used = now
        self._sessions.move_to_end(session.id)

    def _make_room(self) -> None:
        if len(self._sessions) < self._limit:
            return
        oldest = next((each for each in self._sessions.values() if not each.busy), None)
        if oldest is not None:
            self.forget(oldest, "capacity")

    @staticmethod
    def _reason(session: Session, prompt: Sequence[int], common: int, match: Match) -> CacheReason:
        if not session.ids:
            return "prefix" if match.tokens else "cold"
        if match.tokens < min(common, session.computed, len(prompt) - 1):
            return "evicted"
        if common == len(prompt) == session.prompt_tokens:
            return "identical"
        return "edit" if common < len(session.ids) else "append"
