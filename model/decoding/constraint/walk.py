"""A walk through a grammar, byte by byte, to the nearest end that fixed preferences lead to.

Knows bytes and a grammar over single bytes; knows no tokens. Always: every step is counted against a budget, and where
a walk goes depends on the grammar and the text so far alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from llguidance import LLMatcher

from model.decoding.constraint.vocabulary import BYTE_EOS


class GrammarExhaustedError(Exception):
    """The grammar reached a limit of its own; a fresh one may go further, for what a lexer has met stays in it."""


MAX_BYTES = 1 << 16
"""Of a completion: more than any context holds."""
ALTERNATIVES = 6
"""Other bytes that are tried at each decision."""
LOOKS = frozenset({1, 2, 6, 20, 40, *range(100, MAX_BYTES, 100)})
"""On which returns to a choice a walk looks where each of its bytes leads."""
LATE = 30
"""So many returns to a choice of which some are ASCII take no other."""
MOST_TURNS = 64
"""A walk that looks for nothing new gives up where so many bytes, one after the other, have led to the same choice."""
COMMON = tuple(b"a%ca" % sign for sign in b"@.-_:/,#+= ")
"""What a free text may have to hold that no grammar names as a word."""
SIGNS = b"\n .,:;|-/"
_QUOTE = ord('"')


@dataclass(slots=True)
class Budget:
    """What a search may still do."""

    steps: int
    """Bytes that may be chosen, or looked at."""
    changes: int = 0
    """Decisions of a completion that is too long that may be changed."""


def _every(first: bytes, last: bytes) -> bytes:
    """Every byte once: `first`, the others that are printable, what is not, and `last`."""
    middle = (*range(0x21, 0x7F), 0x20, *range(0x80, 0x100), 0x0A, *range(0x20), 0x7F)
    return bytes(dict.fromkeys((*first, *(byte for byte in middle if byte not in last), *last)))


_ENDING, _OPENING = b"}])>\",;:@!?%&|=~#$'`", b" \n\t/*^.+-<[{(\\"
_LETTERS, _DIGITS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", b"1234567890"
_TIMES = b"TZ"
"""Before other letters: some readers know no others in a date and time, though the lower case is allowed too."""
WIDE = 48
"""Where at least so many bytes may come next, the text is free: inside a string, say."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Which byte a walk takes where several may come next: every byte, in order."""

    narrow: bytes
    """Where the text is not free."""
    wide: bytes
    """Where it is."""
    curious: bool = False
    """Whether a walk that comes back to where it was takes another way than before."""
    patient: bool = False
    """Whether it goes on in a free text when it has come back many times."""


_FREE = _every(b'"' + _LETTERS + _DIGITS, _OPENING)
PREFERENCES = (
    Preference(_every(_ENDING + _TIMES + _LETTERS + _DIGITS, _OPENING), _FREE),
    Preference(_every(_ENDING + _TIMES + _LETTERS + _DIGITS, _OPENING), _FREE, curious=True),
    # Long runs of spaces and of some signs are single tokens, which counts where a text must only be long.
    Preference(_every(_ENDING + _DIGITS + _TIMES + _LETTERS, _OPENING), _every(b'" -=*_', b"[{(<\\"), patient=True),
)
"""For each try."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A completion's bytes, and where along it something else could have been chosen."""

    text: bytes
    decisions: tuple[tuple[int, bytes], ...]
    """(place, other bytes that the grammar allowed there, in the order of preference)."""


class Walker:
    """One walk from a state to the nearest end.

    It cannot see the grammar's states, and takes the set of bytes that may come next for one.
    """

    def __init__(self, state: LLMatcher, preference: Preference, hints: "Hints") -> None:
        self._matcher = state.deep_copy()
        self._preference = preference
        self._hints = hints
        self._text = bytearray()
        self._decisions: list[tuple[int, bytes]] = []
        self._visits: dict[int, int] = {}
        self._forks: dict[int, Fork] = {}
        self._last = 0
        self._turns = 0

    def walk(self, start: bytes, steps: int, budget: Budget) -> Walk | None:
        """Over `start` to an end. None when there is none within `steps`."""
        self._take(start)
        until = budget.steps - min(steps, budget.steps)
        while budget.steps > until:
            budget.steps -= 1
            certain = bytes(self._matcher.compute_ff_tokens())
            self._take(certain)
            if self._matcher.is_accepting():
                return Walk(bytes(self._text), tuple(self._decisions))
            if len(self._text) > MAX_BYTES or not self._choose(certain, budget):
                return None
        return None

    def _take(self, some: bytes) -> None:
        if not some:
            return
        self._text += some
        if not self._matcher.consume_tokens(list(some)):
            raise GrammarExhaustedError

    def _choose(self, certain: bytes, budget: Budget) -> bool:
        allowed = _allowed(self._matcher)
        wide = allowed.bit_count() >= WIDE
        visit = self._visits.get(allowed, 0)
        self._visits[allowed] = visit + 1
        self._turns = self._turns + 1 if allowed == self._last else 0
        self._last = allowed
        _, opened, begun = certain.rpartition(b'"')
        if (wide or opened) and not self._turns and (hint := self._hint(allowed, begun, first=not visit)):
            self._take(hint)
            return True
        choices = _ordered(allowed, self._preference.wide if wide else self._preference.narrow)
        if not choices or self._is_stuck(wide):
            return False
        taken = 0
        curious = self._preference.curious and visit and len(choices) > 1
        if curious and not self._closes(allowed, choices, visit, budget):
            taken = choices.index(self._other_way(allowed, choices, visit, budget))
        if len(choices) > 1:
            others = choices[:taken] + choices[taken + 1 :]
            self._decisions.append((len(self._text), others[:ALTERNATIVES]))
        self._take(choices[taken : taken + 1])
        return True

    def _is_stuck(self, wide: bool) -> bool:
        return self._turns > MOST_TURNS and not (self._preference.curious or (wide and self._preference.patient))

    def _closes(self, allowed: int, choices: bytes, visit: int, budget: Budget) -> bool:
        """Whether the first of `choices` is a quote that closes a string, as it nearly always should."""
        return choices[0] == _QUOTE and visit % LATE != 0 and self._leads_to(_QUOTE, budget) != allowed

    def _other_way(self, allowed: int, choices: bytes, visit: int, budget: Budget) -> int:
        """The byte that ends the text, or else one of the way that was taken least."""
        fork = self._forks.get(allowed)
        # The same bytes may come next in other states too, and lead elsewhere there.
        if fork is None or visit in LOOKS:
            ways: dict[int, bytearray] = {}
            for byte in choices if visit > LATE else (choices.translate(None, _NOT_ASCII) or choices):
                leads_to = self._leads_to(byte, budget)
                if leads_to == _END:
                    return byte
                ways.setdefault(leads_to, bytearray()).append(byte)
            fork = self._forks[allowed] = Fork.of(ways, allowed, {} if fork is None else fork.taken)
        return fork.next(self._hints.signs)

    def _leads_to(self, byte: int, budget: Budget) -> int:
        """What may come after `byte`: bytes as bits, 0 where it is certain, `_END` where the text may end."""
        budget.steps -= 1
        self._matcher.consume_token(byte)
        certain = bool(self._matcher.compute_ff_tokens())
        allowed = 0 if certain else _allowed(self._matcher)
        accepting = self._matcher.is_accepting()
        self._matcher.rollback(1)
        return _END if accepting else allowed

    def _hint(self, allowed: int, begun: bytes, *, first: bool) -> bytes | None:
        """A text that the grammar names and that leads somewhere new; or, in a string that may not be closed here and
        that looks like one before, elsewhere. `begun` is certain, and may be the beginning of such a text."""
        if not first and allowed >> _QUOTE & 1:
            return None
        seen = (0, *self._visits) if first else (0, allowed)
        for text in self._hints.texts:
            hint = text.removeprefix(begun)
            if not hint or self._matcher.validate_tokens(list(hint)) < len(hint):
                continue
            matcher = self._matcher.deep_copy()
            matcher.consume_tokens(list(hint))
            if matcher.is_accepting() or _allowed(matcher) not in seen:
                return hint
        return None


_END = -1
_SAME_WAY, _ODD_WAY = 4, 16
"""How much rarer than others a way is taken that leads back at once, and one that is no visible sign."""
_ODD = frozenset((*range(0x20), ord("\\"), *range(0x7F, 0x100))) - {0x0A}
_NOT_ASCII = bytes(range(0x80, 0x100))


@dataclass(slots=True)
class Fork:
    """Where the same bytes may come next: its ways, each of the bytes that lead to the same, and how often each was
    taken. Every way is taken again and again, so no grammar keeps a walk in a circle that it could leave so."""

    ways: dict[int, bytes]
    weights: dict[int, int]
    taken: dict[int, int]

    @classmethod
    def of(cls, ways: Mapping[int, bytearray], here: int, taken: dict[int, int]) -> "Fork":
        """`taken` is what was counted before."""
        weights = {
            leads_to: _ODD_WAY if way[0] in _ODD else _SAME_WAY if leads_to == here else 1
            for leads_to, way in ways.items()
        }
        return cls({leads_to: bytes(way) for leads_to, way in ways.items()}, weights, taken)

    def next(self, signs: bytes) -> int:
        """A byte of the way whose turn it is: its first, and in every other turn one of `signs`, or now and then any,
        for they may count where everything seems to lead to the same."""
        leads_to = min(self.ways, key=lambda way: (self.taken.get(way, 0) + 1) * self.weights[way])
        count = self.taken[leads_to] = self.taken.get(leads_to, 0) + 1
        way = self.ways[leads_to]
        if count % ANY == 0:
            return way[count // ANY % len(way)]
        usual = bytes(sign for sign in signs if sign in way) if count % 2 == 0 else b""
        return usual[count // 2 % len(usual)] if usual else way[0]


ANY = 16
"""In one of so many turns a way's byte is any of its bytes."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What the source of a grammar names and a free text may have to hold."""

    texts: tuple[bytes, ...] = ()
    signs: bytes = SIGNS
    """Bytes that may separate its parts."""
    example: bytes = b""
    """A whole text that it probably matches."""

    @classmethod
    def of(cls, texts: Iterable[bytes], source: bytes, example: bytes = b"") -> "Hints":
        """`source` is the grammar's own text: of the usual signs those that it names."""
        named = source.replace(rb"\n", b"\n")
        return cls((*texts, *COMMON), bytes(sign for sign in SIGNS if sign in named) or SIGNS, example)


def completes(state: LLMatcher, text: bytes) -> bool:
    """Whether the grammar accepts `text` and an end there. Raises GrammarExhaustedError."""
    valid = state.validate_tokens([*text, BYTE_EOS])
    if state.is_error():
        raise GrammarExhaustedError
    return valid == len(text) + 1


@lru_cache(4096)
def _ordered(allowed: int, order: bytes) -> bytes:
    """The bytes whose bits are set, in this order."""
    return bytes(byte for byte in order if allowed >> byte & 1)


def _allowed(matcher: LLMatcher) -> int:
    """The bytes that may come next, as bits. Raises GrammarExhaustedError."""
    mask = int.from_bytes(matcher.compute_bitmask()[:32], "little")
    if matcher.is_error() and matcher.stop_reason() not in ("NoExtension", "NoExtensionBias"):
        raise GrammarExhaustedError
    return 0 if matcher.is_error() else mask
