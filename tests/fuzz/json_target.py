"""Bodies of requests: from bytes to fields."""

import contextlib
import json
from collections.abc import Iterator

from service.errors import ServiceError
from service.json_body import MAX_DEPTH, parse
from service.openai_schemas import ChatRequest, CompletionRequest
from service.replay_schemas import ReplayOfOne, ReplayRequest
from service.schemas import Body, DetokenizeRequest, ForkRequest, GenerateRequest, TokenizeRequest, read
from tests.fuzz.target import Target
from tests.hostile.inputs import every_input

BODIES: tuple[type[Body], ...] = (
    GenerateRequest,
    TokenizeRequest,
    DetokenizeRequest,
    ForkRequest,
    ChatRequest,
    CompletionRequest,
    ReplayRequest,
    ReplayOfOne,
)
SHORT = 2000
SEEDS = (
    b'{"prompt":"a\\ud83c\\udf31b","temperature":0.5,"stop":["x"],"logit_bias":{"5":-1e1},"stream":true}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"response_format":{"type":"text"}}',
    b'{"prompt_tokens":[1,2,3],"constraint":{"json_schema":{"type":"object"}},"logprobs":{"top":3}}',
    b'{"text":"\xc3\xbc\xe7\xa8\xae"}',
)
CLIENTS_FAULT = range(400, 500)


def json_target() -> Target:
    """Seeds are short bodies, the hostile ones among them; words are the names of all fields."""
    bodies = [hostile.raw.partition(b"\r\n\r\n")[2] for hostile in every_input()]
    names = {name for kind in BODIES for name in kind.model_fields}
    words = [json.dumps(name).encode() + b":" for name in sorted(names)]
    more = (b"null", b"true", b"1e400", b"-0", b"NaN", b"\\u0000", b"\\ud800", b"[[", b"{}", b"\xff", b"9" * 20)
    short = dict.fromkeys(body for body in bodies if 0 < len(body) <= SHORT)
    return Target((*SEEDS, *short), (*words, *more), lambda: _read, most_bytes=4096)


def _read(data: bytes) -> None:
    with _refusals():
        value = parse(data)
        assert json.loads(data.decode()) == value
        assert _depth(value) <= MAX_DEPTH
        json.dumps(value, ensure_ascii=False).encode()
        for kind in BODIES:
            with _refusals():
                read(kind, value)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Errors that are a caller's to mend, each with a message that can be sent."""
    refusal = None
    try:
        yield
    except ServiceError as error:
        refusal = error
    if refusal is not None:
        assert refusal.status in CLIENTS_FAULT
        json.dumps([refusal.message, refusal.param, refusal.allowed], ensure_ascii=False).encode()


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
