"""One accepted request, seen from the event loop.

Knows events and nothing of the engine. Always: every reader sees the terminal event, after the deltas.
"""

import asyncio
from collections.abc import Callable

from service.request import Delta, Failed, Finished


class Ticket:
    """One accepted request, seen from the event loop.

    Deltas that were not read yet wait here, at most `max_new_tokens` tokens of them for each sample; a slow reader
    never holds the engine up. Several may read: each delta goes to one of them, the terminal event to all.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._waiting: dict[int, list[Delta]] = {}
        self._terminal: Finished | Failed | None = None
        self._news = asyncio.Event()
        """Set as soon as there is something for whoever waits in `next_event`."""

    def put(self, event: Delta | Finished | Failed) -> None:
        if isinstance(event, Delta):
            self._waiting.setdefault(event.index, []).append(event)
        else:
            self._terminal = event
        self._news.set()

    async def next_event(self) -> Delta | Finished | Failed:
        """What is new: one delta for each index, merged from all that wait, and the terminal event last."""
        while not self._waiting:
            if self._terminal is not None:
                return self._terminal
            self._news.clear()
            await self._news.wait()
        return Delta.merged(self._waiting.pop(next(iter(self._waiting))))

    def cancel(self) -> None:
        """Ask for the end; nothing happens when it has come already."""
        if self._terminal is None:
            self._cancel()
