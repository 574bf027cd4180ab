"""Log lines: one JSON object or one line of text for each record, whatever stands in it."""

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from service.logs import AnswerCut, JsonLines, LogForm, TextLines, configure_logging, form_for, told

HOSTILE = 'a"}\r\n{"event":"forged"}\u2028\u0085\x1b[31m\x00\x7f\udc80 \\ 種'
FORMATTERS: dict[LogForm, logging.Formatter] = {"json": JsonLines(), "text": TextLines()}


def record(message: str = "something", error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    trace = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("service.some", logging.WARNING, "file.py", 1, message, None, trace)
    made.__dict__.update(extra)
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(JsonLines().format(made))
    return line


def test_a_line_has_its_time_level_event_and_fields() -> None:
    made = record("ready", **told("ready", port=80, key=None))
    made.created = 1796026579.0625

    assert {
        "ts": "2026-11-30T08:16:19.062Z",
        "level": "warning",
        "event": "ready",
        "port": 80,
        "key": None,
    } == as_json(made)


def test_a_line_of_no_event_says_who_wrote_it() -> None:
    line = as_json(record("words"))

    assert ("log", "service.some", "words") == (line["event"], line["logger"], line["message"])


def test_a_message_has_its_arguments() -> None:
    made = record("%d of %s")
    made.args = (3, "four")

    assert "3 of four" == as_json(made)["message"]


def test_a_traceback_is_a_field() -> None:
    assert "ValueError: no\n" in as_json(record(error=ValueError("no")))["traceback"]


def test_a_value_that_json_has_not_is_written_as_text() -> None:
    assert "{1}" == as_json(record(**told("odd", value={1})))["value"]


def test_text_is_a_level_a_message_and_fields() -> None:
    made = record("no more", **told("drain", signal="SIGTERM", left=2.5, none=None, names=["a", "b"], said="a b"))

    assert 'WARNING:  no more signal=SIGTERM left=2.5 names=["a", "b"] said="a b"' == TextLines().format(made)


@pytest.mark.parametrize("form", FORMATTERS)
def test_nothing_that_is_told_begins_a_line_or_commands_a_terminal(form: LogForm) -> None:
    made = record(f"begins {HOSTILE}", **told("event", field=HOSTILE, fields=[HOSTILE]))

    line = FORMATTERS[form].format(made)

    assert line.isprintable()


def test_json_keeps_hostile_text_as_it_was() -> None:
    assert HOSTILE == as_json(record(**told("event", field=HOSTILE)))["field"]


def test_lines_of_a_traceback_in_a_text_begin_with_spaces() -> None:
    first, *others = TextLines().format(record(error=ValueError(f"x\nWARNING: forged {HOSTILE}"))).split("\n")

    assert "WARNING:  something" == first
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)


@pytest.mark.parametrize(
    ("wanted", "terminal", "form"),
    [("auto", True, "text"), ("auto", False, "json"), ("text", False, "text"), ("json", True, "json")],
)
def test_auto_is_text_on_a_terminal(wanted: Literal["auto", "text", "json"], terminal: bool, form: str) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]

    assert form == form_for(wanted, stream)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged as JSON from level info on; afterwards everything is as it was."""
    root, stream, hook = logging.getLogger(), io.StringIO(), sys.excepthook
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    configure_logging("info", "json", stream)
    yield stream
    logging.captureWarnings(False)
    sys.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


def events(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_every_logger_writes_in_the_form(lines: io.StringIO) -> None:
    logging.getLogger("asyncio").error("a task %s", "failed")
    logging.getLogger("some.server").info("running", extra={"color_message": "\x1b[1mrunning"})
    logging.getLogger("service").debug("too small")

    assert ["a task failed", "running"] == [line["message"] for line in events(lines)]


def test_warnings_are_lines(lines: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("mind this", stacklevel=1)

    assert "mind this" in events(lines)[0]["message"]


def test_an_exception_that_ends_the_process_is_a_line(lines: io.StringIO) -> None:
    sys.excepthook(ValueError, ValueError("the last"), None)

    (line,) = events(lines)
    assert ("critical", "crash") == (line["level"], line["event"])
    assert re.search("ValueError: the last", line["traceback"])


def test_a_server_does_not_tell_again_of_an_answer_that_was_cut(lines: io.StringIO) -> None:
    cut = AnswerCut()

    for error in (cut, ValueError("another")):
        logging.getLogger("some.server").error("Exception in ASGI application\n", exc_info=error)

    (line,) = events(lines)
    assert "another" in line["traceback"]
