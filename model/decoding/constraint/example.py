"""The shortest text that a regular expression matches, read off its syntax.

Knows the usual syntax and gives up at the rest: whoever uses an example asks the grammar whether it matches.
Always: the work is linear in the length of the pattern, however often it repeats something.
"""

import re
from dataclasses import dataclass

MAX_CHARACTERS = 1 << 16
MAX_NESTING = 64

_QUANTIFIER = re.compile(r"(?:[*?]|\+|\{([0-9]{0,9})(?:,[0-9]{0,9})?\})\??")
_GROUP = re.compile(r"\(\?(?:[imsuU-]*([:)])|P?<[A-Za-z_][A-Za-z0-9_]*>)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\\[])*\]", re.DOTALL)
_TOKEN = re.compile(rf"\\.|{_CLASS.pattern}", re.DOTALL)
_CODE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")
_SET_OPERATOR = re.compile(r"&&|--|\|\||~~")
_PREFERRED = "aA1 -.,:/_@\n\t" + "".join(map(chr, range(0x21, 0x7F))) + "éß中🌱"
_ANCHORS = ("\\A", "\\z", "^", "$")


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or how long it would be."""

    size: int
    """In characters."""
    text: str
    """Empty where it would have more than MAX_CHARACTERS."""

    def then(self, other: "Example") -> "Example":
        size = self.size + other.size
        return Example(size, self.text + other.text if size <= MAX_CHARACTERS else "")

    def times(self, count: int) -> "Example":
        size = self.size * count
        return Example(size, self.text * count if size <= MAX_CHARACTERS else "")


_NOTHING = Example(0, "")


def example_of(pattern: str) -> Example | None:
    """None where the pattern holds what is not known here."""
    reader = _Reader(pattern)
    try:
        example = reader.alternatives(0)
    except _UnknownError:
        return None
    return example if reader.place == len(pattern) else None


class _UnknownError(Exception):
    pass


class _Reader:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.place = 0

    def alternatives(self, depth: int) -> Example:
        """Up to the end, or to the bracket that closes a group: the shortest alternative, the first of several."""
        if depth > MAX_NESTING:
            raise _UnknownError
        shortest = self._sequence(depth)
        while self._pattern.startswith("|", self.place):
            self.place += 1
            shortest = min(shortest, self._sequence(depth), key=lambda one: one.size)
        return shortest

    def _sequence(self, depth: int) -> Example:
        parts = _NOTHING
        while self.place < len(self._pattern) and self._pattern[self.place] not in "|)":
            part = self._atom(depth)
            while found := _QUANTIFIER.match(self._pattern, self.place):
                self.place = found.end()
                sign = found[0][0]
                part = part.times(int(found[1] or 0) if sign == "{" else int(sign == "+"))
            parts = parts.then(part)
        return parts

    def _atom(self, depth: int) -> Example:
        pattern, start = self._pattern, self.place
        if pattern[start] == "(":
            return self._group(depth)
        if pattern[start] in "*+?{":
            raise _UnknownError
        for anchor in _ANCHORS:
            if pattern.startswith(anchor, start):
                self.place += len(anchor)
                return _NOTHING
        if pattern[start] not in "[\\":
            self.place += 1
            return Example(1, "a" if pattern[start] == "." else pattern[start])
        found = _CLASS.match(pattern, start) or _CODE.match(pattern, start)
        self.place = found.end() if found else start + 2
        return Example(1, _member(pattern[start : self.place]))

    def _group(self, depth: int) -> Example:
        found = _GROUP.match(self._pattern, self.place)
        if found is None and self._pattern.startswith("(?", self.place):
            raise _UnknownError
        self.place = found.end() if found else self.place + 1
        if found and found[1] == ")":
            return _NOTHING
        inner = self.alternatives(depth + 1)
        if not self._pattern.startswith(")", self.place):
            raise _UnknownError
        self.place += 1
        return inner


def without_controls(pattern: str) -> str:
    """The pattern with classes that hold no control characters where they hold others but no quote or no backslash.

    In a JSON string the library would let an escaped quote, or backslash, pass for one of such a class.
    """
    return _TOKEN.sub(lambda found: _without_controls(found[0]), pattern)


def _without_controls(token: str) -> str:
    if not token.startswith("[") or _SET_OPERATOR.search(token):
        return token
    try:
        matches = re.compile(token).fullmatch
    except re.error:
        return token
    leaks = matches("\x01") and not (matches('"') and matches("\\"))
    return rf"[{token}&&[^\x00-\x1f]]" if leaks else token


def _member(group: str) -> str:
    """A character of a class or an escape."""
    if _SET_OPERATOR.search(group):
        raise _UnknownError
    try:
        matches = re.compile(group).fullmatch
    except re.error as error:
        raise _UnknownError from error
    for character in _PREFERRED + group:
        if matches(character):
            return character
    raise _UnknownError
