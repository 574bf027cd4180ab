"""When an engine counts as lost."""

from dataclasses import dataclass

from service.watchdog import LOOK_S, STALL_S, Watchdog


@dataclass
class Engine:
    beat: float = 0.0
    has_ended: bool = False


def test_an_engine_that_stands_still_is_lost_after_its_time() -> None:
    watchdog = Watchdog([Engine()])

    lost = [watchdog.lost(second) for second in range(int(STALL_S) + 2)]

    assert STALL_S == lost.index([0])


def test_an_engine_that_moves_now_and_then_is_not_lost() -> None:
    engine = Engine()
    watchdog = Watchdog([engine])

    lost = []
    for second in range(300):
        engine.beat = second // (STALL_S - 1)
        lost += watchdog.lost(second)

    assert [] == lost


def test_a_process_that_was_stopped_for_an_hour_proves_nothing() -> None:
    """The engine has had no time to move when the clock is read again."""
    engine = Engine()
    watchdog = Watchdog([engine])
    watchdog.lost(0)

    after = watchdog.lost(3600)
    engine.beat = 3600.5
    later = [watchdog.lost(3601 + second) for second in range(int(STALL_S - LOOK_S))]

    assert ([], False) == (after, any(later))


def test_of_several_engines_those_that_are_lost_are_named() -> None:
    moving, standing = Engine(), Engine()
    watchdog = Watchdog([moving, standing])
    lost: list[int] = []

    for second in range(int(STALL_S) + 1):
        moving.beat = second
        lost = watchdog.lost(second)

    assert [1] == lost


def test_an_engine_that_nothing_turns_any_more_is_lost_at_once() -> None:
    assert [0] == Watchdog([Engine(has_ended=True)]).lost(0)
