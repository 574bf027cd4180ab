"""Waits that are cut short when they last too long, and only then."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Any, TypeVar

import pytest

from service.exchange import Patience

SHORT_S = 0.02
Made = TypeVar("Made")


class LoopOfItsOwnTime(asyncio.SelectorEventLoop):
    """Its clock jumps over every wait, so that no machine is too slow for it."""

    def __init__(self) -> None:
        super().__init__(Impatient(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class Impatient(selectors.DefaultSelector):
    """Waits for nothing."""

    def __init__(self, loop: LoopOfItsOwnTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.now += timeout or 0.0
        return super().select(0)


def in_own_time(run: Callable[[], Awaitable[Made]]) -> Made:
    async def awaited() -> Made:
        return await run()

    with asyncio.Runner(loop_factory=LoopOfItsOwnTime) as runner:
        return runner.run(awaited())


def test_a_wait_that_lasts_too_long_is_a_timeout() -> None:
    async def run() -> float:
        with closing(Patience(SHORT_S)) as patience:
            with pytest.raises(TimeoutError), patience:
                await asyncio.sleep(10)
            return asyncio.get_running_loop().time()

    assert SHORT_S == pytest.approx(in_own_time(run))


def test_every_wait_has_the_whole_time() -> None:
    async def run() -> int:
        waits = 0
        with closing(Patience(5 * SHORT_S)) as patience:
            for _ in range(10):
                with patience:
                    await asyncio.sleep(SHORT_S)
                waits += 1
        return waits

    assert 10 == in_own_time(run)


def test_a_second_wait_is_cut_as_the_first_was() -> None:
    async def run() -> float:
        with closing(Patience(SHORT_S)) as patience:
            for _ in range(2):
                with suppress(TimeoutError), patience:
                    await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    assert 2 * SHORT_S == pytest.approx(in_own_time(run))


def test_what_lasts_long_between_two_waits_is_left_alone() -> None:
    async def run() -> bool:
        with closing(Patience(SHORT_S)) as patience:
            with patience:
                await asyncio.sleep(0)
            await asyncio.sleep(3 * SHORT_S)
            with patience:
                await asyncio.sleep(0)
        return True

    assert in_own_time(run)


def test_a_task_that_is_cancelled_is_not_told_of_a_timeout() -> None:
    async def run() -> bool:
        async def wait() -> None:
            with closing(Patience(10)) as patience, patience:
                await asyncio.sleep(20)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert in_own_time(run)


def test_a_task_that_is_cancelled_as_its_wait_is_cut_is_cancelled() -> None:
    async def run() -> bool:
        async def wait() -> None:
            with closing(Patience(SHORT_S)) as patience, suppress(TimeoutError), patience:
                await asyncio.sleep(10)

        task = asyncio.create_task(wait())
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopOfItsOwnTime)
        loop.call_later(SHORT_S / 2, task.cancel)
        await asyncio.sleep(0)
        loop.now += 2 * SHORT_S  # so that both timers ring in one turn of the loop
        await asyncio.wait([task])
        return task.cancelled()

    assert in_own_time(run)


def test_nothing_is_cut_after_the_end() -> None:
    async def run() -> bool:
        with closing(Patience(SHORT_S)):
            pass
        await asyncio.sleep(3 * SHORT_S)
        return True

    assert in_own_time(run)
