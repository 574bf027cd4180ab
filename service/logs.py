"""How log lines are written: as JSON, one object a line, or as text for people.

Knows nothing of what is told. Always: a record is one line of printable characters, whatever stands in it, but that
text gives a traceback lines of its own, which begin with spaces.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

LogForm = Literal["text", "json"]
NO_EVENT = "log"
"""What a line is named that no code of ours named."""

logger = logging.getLogger(__name__)


def told(event: str, **fields: Any) -> dict[str, Any]:
    """What a call of a logger takes as `extra`, for a line of this name and these fields."""
    return {"event": event, "fields": fields}


class JsonLines(logging.Formatter):
    """`{"ts", "level", "event", …}`: the fields, and where there are such a message and a traceback. All ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": event_of(record),
            **fields_of(record),
        }
        message = record.getMessage()
        if message != line["event"]:
            line |= {"logger": record.name, "message": message.strip()}
        if trace := _traceback(record):
            line["traceback"] = trace
        return json.dumps(line, default=str, separators=(",", ":"))


class TextLines(logging.Formatter):
    """`LEVEL:    message field=value …`, without fields that are null."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={_value(value)}" for name, value in fields_of(record).items() if value is not None]
        line = " ".join([f"{record.levelname}:".ljust(9), one_line(record.getMessage().strip()), *fields])
        return "\n    ".join([line, *map(one_line, _traceback(record).splitlines())])


def event_of(record: logging.LogRecord) -> str:
    return str(getattr(record, "event", NO_EVENT))


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def one_line(text: str) -> str:
    """The text with everything escaped that is not printable: it can neither begin a line nor command a terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def _value(value: Any) -> str:
    """A field in a text; quoted where it could be taken for two."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    is_plain = text.isprintable() and not set(text) & set(' "=')
    return text if is_plain or not isinstance(value, str) else json.dumps(text)


def _traceback(record: logging.LogRecord) -> str:
    if record.exc_info is None or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info))


class _NotTold(logging.Filter):
    """Drops what a server says of an exception that has a line already."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], AnswerCut))


class AnswerCut(Exception):
    """An answer broke after its status, and was logged: whoever holds the connection must end it."""


def form_for(wanted: LogForm | Literal["auto"], stream: TextIO) -> LogForm:
    """The form that is wanted; auto is text on a terminal and JSON elsewhere."""
    if wanted != "auto":
        return wanted
    return "text" if stream.isatty() else "json"


def configure_logging(level: str, form: LogForm, stream: TextIO) -> None:
    """Have every logger of this process write to the stream in this form, warnings and a last exception too."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(_NotTold())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    if form == "json":
        sys.excepthook = _tell_exception


def _tell_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("the process ends by an exception", exc_info=(kind, error, trace), extra=told("crash"))
