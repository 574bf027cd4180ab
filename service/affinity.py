"""Who calls, and which of its requests belong together: the headers of every call that a client makes.

Knows keys and the fields of requests; opens no connection. `x-session-id` has a router send what belongs together to
one server, which then has most of it in its cache. Always: a value of that header is a digest, from which neither key
nor prompt can be read; another key's requests have others; whoever goes without it waits longer and gets the same.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Any

HEADER = "x-session-id"
PREFIX_LENGTH = 256
"""So many characters of a prompt tell which begin alike."""
DIGEST_DIGITS = 32
API_KEY = re.compile(r"[!-~]+")


class Caller:
    """Someone with a key, or without. Raises ValueError, which does not show the key, for one that no header holds."""

    def __init__(self, api_key: str | None) -> None:
        if api_key is not None and not API_KEY.fullmatch(api_key):
            raise ValueError("api_key must be printable ASCII characters without spaces")
        self._key = (api_key or "").encode()
        self.headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        """What every call carries."""

    def affinity(self, fields: Mapping[str, Any]) -> dict[str, str]:
        """The header of a request: from its session, else from how its prompt begins, if it has either."""
        session = fields.get("session_id")
        if isinstance(session, str):
            return {HEADER: self._digest(f"session {session}")}
        beginning = beginning_of(fields)
        return {HEADER: self._digest(f"prompt {beginning}")} if beginning else {}

    def _digest(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGEST_DIGITS]


def beginning_of(fields: Mapping[str, Any]) -> str:
    """How the prompt begins: the text, the texts of messages in their order, or ids; empty when there is none.

    What is not of the form that the server takes is passed over, since the server will refuse it.
    """
    match fields:
        case {"prompt": str(text)}:
            return text[:PREFIX_LENGTH]
        case {"messages": [*messages]}:
            return _joined(messages)
        case {"prompt_tokens": [*ids]}:
            return " ".join(map(str, ids[:PREFIX_LENGTH]))[:PREFIX_LENGTH]
    return ""


def _joined(messages: Sequence[Any]) -> str:
    texts = (each["content"] for each in messages if isinstance(each, Mapping) and isinstance(each.get("content"), str))
    return "".join(texts)[:PREFIX_LENGTH]
