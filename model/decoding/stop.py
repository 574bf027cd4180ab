"""Stop strings in a text that grows: where one is complete, and how much of the end may begin one.

Knows characters only, no tokens. Always: the work per character is constant (Knuth, Morris and Pratt 1977), and
nothing of the text is kept.
"""

from copy import copy
from typing import Self


class _StopString:
    """One stop string, and how many of its first characters the text ends with."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.matched = 0
        self._borders = _borders(characters)

    def fork(self) -> Self:
        """The same place for a second text."""
        return copy(self)

    def push(self, text: str) -> int | None:
        """How many characters of `text` end its first completed match; None without one."""
        stop, matched = self.characters, self.matched
        if not matched and stop[0] not in text:
            return None
        end = None
        for count, character in enumerate(text, start=1):
            while matched and stop[matched] != character:
                matched = self._borders[matched - 1]
            matched += stop[matched] == character
            if matched == len(stop):
                end = count if end is None else end
                matched = self._borders[matched - 1]
        self.matched = matched
        return end


def _borders(characters: str) -> list[int]:
    """For each prefix the length of its longest proper prefix that is also its end."""
    borders = [0]
    for character in characters[1:]:
        length = borders[-1]
        while length and characters[length] != character:
            length = borders[length - 1]
        borders.append(length + (characters[length] == character))
    return borders


class StopMatcher:
    """Looks for any of several stop strings, none of them empty, in a text that arrives in pieces."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stops = [_StopString(characters) for characters in stop]
        self._length = 0

    def fork(self) -> Self:
        """The same place for a second text that goes on from here."""
        child = copy(self)
        child._stops = [stop.fork() for stop in self._stops]
        return child

    @property
    def held_length(self) -> int:
        """The longest end of the text so far that is a proper beginning of a stop string, in characters."""
        return max(stop.matched for stop in self._stops) if self._stops else 0

    def push(self, text: str) -> int | None:
        """Where the earliest match that `text` completes starts, counted from the beginning of the whole text."""
        if not self._stops:
            return None
        starts = [
            self._length + end - len(stop.characters) for stop in self._stops if (end := stop.push(text)) is not None
        ]
        self._length += len(text)
        return min(starts, default=None)
