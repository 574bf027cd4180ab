"""Between the event loop and the engine thread: one inbox going in, one hop for each step's events coming out.

The only module that knows both the thread and the loop. Knows nothing of HTTP, text or tensors.
Always: `submit`, `cancel` and `command` are called on the event loop; the engine is touched by its thread alone; every
accepted request gets its terminal event and every command its answer, also when the engine fails, stops or hangs.
"""

import asyncio
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from service.admission import Ledger, Quote
from service.engine import Engine
from service.errors import Draining, ServiceError
from service.logs import told
from service.request import CommandAnswer, Delta, Event, Failed, GenerationRequest, SessionCommand, Usage
from service.step_report import StepReport
from service.ticket import Ticket

logger = logging.getLogger(__name__)

IDLE_WAIT_S = 1.0
"""How often an idle engine wakes to forget what has outlived its time."""
STALL_S = 30.0
"""A step longer than this means that the engine hangs."""
JOIN_S = 1.0
"""A thread that has said its last needs no longer to end."""
REPORT_S = 0.1
"""How long reports may wait for more while requests run; a step that is under way is waited for too.

Told together, they find the code that counts them in the caches.
"""


@dataclass(frozen=True, slots=True)
class Submit:
    request: GenerationRequest
    arrived: float


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class LetGo:
    key_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Message = Submit | Cancel | LetGo | Stop | SessionCommand


class Runtime:
    """The running engine."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        *,
        on_report: Callable[[StepReport], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._on_report = on_report
        self._clock = clock
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._tickets: dict[str, Ticket] = {}
        self._commands: dict[str, asyncio.Future[CommandAnswer]] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._closed = asyncio.Event()
        self._reports: list[StepReport] = []
        """Of steps that were not told yet."""
        self._told = self._beat = clock()
        self._is_open = False
        """Whether someone answers: from `start` to `_close`. Changed on the event loop alone."""
        self.draining = False

    @property
    def is_live(self) -> bool:
        """Whether the engine thread runs and its steps move."""
        return self._thread.is_alive() and self._clock() - self._beat < STALL_S

    @property
    def beat(self) -> float:
        """When the thread last ended a turn."""
        return self._beat

    @property
    def has_ended(self) -> bool:
        """Whether the thread is gone though nobody stopped it."""
        return not self._thread.is_alive() and not self.draining

    @property
    def is_ready(self) -> bool:
        return self.is_live and not self.draining

    @property
    def unfinished(self) -> int:
        """How many accepted requests have not ended."""
        return len(self._tickets)

    @property
    def queued_tokens(self) -> int:
        """Cache positions that unfinished requests may come to hold."""
        return self._ledger.outstanding_tokens

    def start(self) -> None:
        """Begin to run, answering on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._beat = self._clock()
        self._is_open = True
        self._thread.start()

    def submit(self, request: GenerationRequest) -> Ticket:
        """Accept a request. Raises what `Ledger.admit` raises, or Draining, and then nothing was accepted."""
        if self.draining or not self._is_open:
            raise Draining("the server is stopping")
        self._ledger.admit(request)
        ticket = self._tickets[request.id] = Ticket(lambda: self._inbox.put(Cancel(request.id)))
        self._empty.clear()
        self._inbox.put(Submit(request, self._clock()))
        return ticket

    def quote(self, request: GenerationRequest) -> Quote:
        """What a request would cost, and whether it would be accepted now."""
        quote = self._ledger.quote(request)
        if self.draining or not self._is_open:
            return replace(quote, refusal=Draining("the server is stopping"))
        return quote

    def let_keys_go(self, key_ids: frozenset[str]) -> None:
        """Keep nothing for these keys and, of those named before, for no others; what runs for them may finish."""
        self._inbox.put(LetGo(key_ids))

    async def command(self, command: SessionCommand) -> CommandAnswer:
        """Carry out a session command between two steps. Raises Draining, and ServiceError for a fault of ours."""
        if not self._is_open:
            raise Draining("the server is stopping")
        future: asyncio.Future[CommandAnswer] = asyncio.get_running_loop().create_future()
        self._commands[command.id] = future
        self._inbox.put(command)
        try:
            return await future
        finally:
            self._commands.pop(command.id, None)

    async def drain(self, seconds: float) -> None:
        """Accept nothing more and wait until what runs has ended, or the time is over."""
        self.draining = True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            logger.warning("%d requests did not end within %g s", len(self._tickets), seconds)

    async def stop(self) -> None:
        """End what still runs with `engine_stopped`, and the thread unless it hangs."""
        self.draining = True
        if self._thread.is_alive():
            self._inbox.put(Stop())
            # No thread waits for the other: none may be begun any more while the interpreter ends.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), STALL_S)
                self._thread.join(JOIN_S)
        self._close()

    def give_up(self) -> str:
        """The engine is lost: answer everyone in its place, with `engine_stopped`. Says where its thread stands."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        self.draining = True
        self._close()
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def _run(self) -> None:
        try:
            while self._turn():
                self._beat = self._clock()
        except BaseException:
            logger.critical(
                "the engine could not begin again; nothing is generated any more",
                exc_info=True,
                extra=told("engine_ended"),
            )
        self._post(self._close)

    def _turn(self) -> bool:
        """Take the messages and run one step; False once the engine was told to stop."""
        events: list[Event] = []
        running = True
        try:
            running = self._take_messages(events)
            stepped, report = self._engine.step() if running else self._engine.stop()
        except BaseException:
            logger.exception("the engine failed; it begins again with an empty cache", extra=told("engine_failed"))
            stepped, report = self._engine.recover("engine_failed")
        self._tell(report)
        events += stepped
        if events:
            self._post(self._dispatch, events)
        return running

    def _take_messages(self, events: list[Event]) -> bool:
        """Apply everything in the inbox, waiting for a message only when there is nothing to run."""
        wait = self._engine.is_idle
        while True:
            try:
                message = self._inbox.get(timeout=IDLE_WAIT_S) if wait else self._inbox.get_nowait()
            except queue.Empty:
                return True
            wait = False
            match message:
                case Stop():
                    return False
                case Submit(request, arrived):
                    self._engine.submit(request, arrived)
                case Cancel(request_id):
                    events += self._engine.cancel(request_id)
                case LetGo(key_ids):
                    self._engine.let_keys_go(key_ids)
                case _:
                    events.append(self._carry_out(message))

    def _carry_out(self, command: SessionCommand) -> CommandAnswer:
        try:
            return self._engine.command(command)
        except BaseException:
            self._post(self._refuse, command.id, ServiceError("the engine failed while it carried out the command"))
            raise

    def _tell(self, report: StepReport) -> None:
        """Tell of this step; soon, or at once where a request ended: its end is counted before its caller knows."""
        self._reports.append(report)
        now = self._clock()
        if report.ran and not report.outcomes and now - self._told < REPORT_S:
            return
        reports, self._reports, self._told = self._reports, [], now
        for each in reports:
            try:
                self._on_report(each)
            except Exception:
                logger.exception("a report of the engine was not taken")

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        """Have the event loop call something; it may be gone."""
        assert self._loop is not None, "the thread starts after the loop is known"
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            logger.warning("the event loop is gone; nobody reads what the engine says")

    def _refuse(self, command_id: str, error: ServiceError) -> None:
        future = self._commands.get(command_id)
        if future is not None and not future.done():
            future.set_exception(error)

    def _close(self) -> None:
        """Nobody will answer any more: do it here for those who still wait."""
        self._dispatch([Failed(request_id, "engine_stopped", Usage()) for request_id in self._tickets])
        for command_id in self._commands:
            self._refuse(command_id, Draining("the server is stopping"))
        self._is_open = False
        self._closed.set()

    def _dispatch(self, events: list[Event]) -> None:
        if not self._is_open:
            return  # the engine hung, was given up, and moves after all
        for event in events:
            if isinstance(event, CommandAnswer):
                future = self._commands.get(event.command_id)
                if future is not None and not future.done():
                    future.set_result(event)
                continue
            ticket = self._tickets[event.request_id]
            if not isinstance(event, Delta):
                del self._tickets[event.request_id]
                self._ledger.settle(event.request_id, event.usage)
            ticket.put(event)
        if not self._tickets:
            self._empty.set()
