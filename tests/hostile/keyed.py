"""The same inputs at a server that asks for keys: with one they are answered as ever, without one not at all."""

from collections.abc import Iterator
from dataclasses import replace

from service.guard import OPEN_PATHS
from tests.hostile.inputs import MIB, Hostile, every_input
from tests.hostile.wire import request

BEFORE_THE_KEY = frozenset({"invalid_http", "ambiguous_length"})
"""What is no request is found before anyone is asked who they are."""


def keyed_inputs(key: str) -> list[Hostile]:
    """All of them, for a server that knows this key."""
    inputs = every_input()
    return [
        *(_with_key(hostile, key) for hostile in inputs),
        *(_without_key(hostile) for hostile in inputs if _is_request(hostile)),
        *key_inputs(key),
    ]


def key_inputs(key: str) -> Iterator[Hostile]:
    """Keys that are none."""
    wrong = {
        "empty": "",
        "wrong": "wrong",
        "longer": f"{key}x",
        "shorter": key[:-1],
        "latin_1": "\xe9",
        "two": f"{key},{key}",
    }
    for name, value in wrong.items():
        raw = request("GET", "/info", authorization=f"Bearer {value}")
        yield Hostile(f"key_{name}", raw, (401,), "invalid_api_key" if value else None)
    twice = request("GET", "/info", authorization=f"Bearer {key}").replace(
        b"\r\n\r\n", b"\r\nauthorization: Bearer x\r\n\r\n"
    )
    yield Hostile("key_and_another", twice, (401,), "invalid_api_key")
    yield Hostile("key_in_query", request("GET", f"/info?api_key={key}&key={key}"), (401,), "invalid_api_key")
    yield Hostile("key_megabyte", request("GET", "/info", authorization="Bearer " + "a" * MIB), (400, None), ends=True)


def _with_key(hostile: Hostile, key: str) -> Hostile:
    header = f"\r\nauthorization: Bearer {key}\r\nhost:".encode()
    return replace(hostile, raw=hostile.raw.replace(b"\r\nhost:", header, 1))


def _without_key(hostile: Hostile) -> Hostile:
    return replace(hostile, name=f"{hostile.name}, no key", statuses=(401,), code="invalid_api_key", lacks=())


def _is_request(hostile: Hostile) -> bool:
    """Whether it is HTTP, and for a path that is not open to all."""
    target = hostile.raw.split(b" ", 2)[1:2]
    is_open = any(target == [path.encode()] for path in OPEN_PATHS)
    return not (is_open or hostile.ends or hostile.is_no_http or hostile.code in BEFORE_THE_KEY)
