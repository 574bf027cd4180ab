"""From the bytes of a request body to plain JSON values, strictly.

Knows ASGI messages and JSON, and nothing of fields.
Always: what comes out is standard JSON in UTF-8, no deeper than allowed, without duplicate keys and without lone
surrogates; the work is linear in the size of the body.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from service.arriving import Arriving
from service.errors import BadJson, BodyTooLarge, GenerationFailed, InvalidField, UnsupportedMedia

MAX_DEPTH = 32
MAX_KEYS = 4096
"""Of one object; an error for each of a million unknown keys would cost more than the body did."""
MAX_NUMBER_LENGTH = 64
SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Possessive quantifiers and an optional closing quote: no input makes this pattern backtrack or start again.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NUMBER_TOO_LONG = re.compile(rb"[-+.0-9eE]{%d}" % (MAX_NUMBER_LENGTH + 1))
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_A_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_CLOSES = {ord("]"): ord("["), ord("}"): ord("{")}

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def read_body(
    headers: Mapping[str, str], receive: Receive, max_bytes: int, arriving: Arriving, key_id: str | None = None
) -> bytes:
    """The whole body, of at most `max_bytes`, beside those that arrive with it, of this key and others.

    Raises UnsupportedMedia, BodyTooLarge (before reading when Content-Length says so), Overloaded when too much is
    arriving, and GenerationFailed when the client goes away.
    """
    _check_headers(headers, max_bytes)
    pieces: list[bytes] = []
    with arriving.one(key_id) as body:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise GenerationFailed("the client went away", code="cancelled")
            piece = message.get("body", b"")
            body.add(len(piece))
            if body.size > max_bytes:
                raise _too_large(max_bytes)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)


def parse(raw: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The JSON value. Raises BadJson, and InvalidField for lone surrogates and for objects of too many keys."""
    text = _decode(raw)
    _check_skeleton(_STRING.sub(b"", raw), max_depth)
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadJson("the body is not valid JSON") from error
    if _SURROGATE_ESCAPE.search(raw):
        check_strings(value, "")
    return value


def safe_name(name: str) -> str:
    """A field name that a caller chose, or a placeholder when it is not fit to be repeated."""
    return name if SAFE_NAME.fullmatch(name) else "?"


def _check_headers(headers: Mapping[str, str], max_bytes: int) -> None:
    media, _, options = headers.get("content-type", "").partition(";")
    charset = options.replace(" ", "").lower()
    if media.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise UnsupportedMedia(
            "the body must be JSON, with content-type application/json", allowed=["application/json"]
        )
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMedia("compressed bodies are not accepted", allowed=["identity"])
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {max_bytes} bytes", allowed={"max_bytes": max_bytes})


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJson(f"the body is not UTF-8 at byte {error.start}", code="invalid_utf8") from error


def _check_skeleton(skeleton: bytes, max_depth: int) -> None:
    """Check what is left of a body without its strings, before a recursive parser sees it."""
    if _NUMBER_TOO_LONG.search(skeleton):
        raise BadJson(f"a number is longer than {MAX_NUMBER_LENGTH} characters")
    open_brackets: list[int] = []
    for bracket in skeleton.translate(None, _NOT_A_BRACKET):
        if bracket not in _CLOSES:
            open_brackets.append(bracket)
            if len(open_brackets) > max_depth:
                raise BadJson(
                    f"the body is nested deeper than {max_depth}",
                    code="json_too_deep",
                    allowed={"max_depth": max_depth},
                )
        elif not open_brackets or open_brackets.pop() != _CLOSES[bracket]:
            raise BadJson("the body is not valid JSON: brackets do not match")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise InvalidField(f"an object has more than {MAX_KEYS} keys", code="too_many", allowed={"max_keys": MAX_KEYS})
    values = dict(pairs)
    if len(values) < len(pairs):
        name = safe_name(_first_duplicate([key for key, _ in pairs]))
        raise BadJson(f"the key {name} stands twice in one object", code="duplicate_key", param=name)
    return values


def _first_duplicate(keys: Sequence[str]) -> str:
    counts = Counter(keys)
    return next(key for key in keys if counts[key] > 1)


def _refuse_constant(name: str) -> None:
    raise BadJson(f"{name} is not JSON: numbers must be finite")


def check_strings(value: Any, path: str) -> None:
    """Raises InvalidField for half a surrogate pair in a text at any depth."""
    if isinstance(value, str):
        if not _is_unicode(value):
            raise InvalidField("the text holds half a surrogate pair", code="invalid_unicode", param=path or None)
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{path}.{safe_name(key)}".lstrip(".")
            check_strings(key, inner)
            check_strings(item, inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_strings(item, f"{path}.{index}".lstrip("."))


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
