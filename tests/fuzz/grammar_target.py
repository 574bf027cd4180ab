"""The compiler of constraints, and the texts that what it compiled allows. The first byte chooses the kind."""

import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from service.errors import ServiceError
from service.json_body import parse
from tests.constrained import random_ids, text_of
from tests.fuzz.target import Run, Target
from tests.hostile_constraints import HOSTILE
from tests.ordinary_patterns import PATTERNS
from tests.tiny_model import TinyShape, write_tiny_gguf

KINDS = ("regex", "json_schema", "grammar", "choice")
LIMIT = 24
SEEDS = (
    b"0(a|b)*c{2,5}",
    b"0" + rb"\d{4}-\d\d-\d\d|[^x]+\.\w?",
    b'1{"type":"object","properties":{"a":{"type":"integer","minimum":3},"b":{"enum":["x",null]}},"required":["a"]}',
    b'1{"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"},"maxItems":2}},"$ref":"#/$defs/n"}',
    b'1{"type":"string","pattern":"^a+$","minLength":2,"format":"date"}',
    b'2start: a b+\na: "x" | /[0-9]+/\nb: a "," | "(" b ")"\n',
    b'2start: %json {"type": "boolean"}\n',
    b'3["yes","no","maybe"]',
)
WORDS = (
    *(b"(", b")", b"[^", b"]", b"{0,99}", b"*", b"+", b"?", b"|", b"\\d", b"\\b", b"(?:", b"(?=", b"(?i)", b"\\p{L}"),
    *(b'"$ref":"#"', b'"anyOf":[', b'"allOf":[', b'"oneOf":[', b'"not":{', b'"items":{', b'"pattern":"'),
    *(b'"type":"string"', b'"multipleOf":0.1', b'"maximum":-1e9', b'"const":', b'"additionalProperties":false'),
    *(
        b"start: ",
        b"%ignore",
        b"%json",
        b"%regex",
        b"%import",
        b"~ 3..5",
        b"[capture]",
        b"\xc3\xbc",
        b"\xf0\x9f\x8c\xb1",
    ),
)


def grammar_target() -> Target:
    """Seeds are small ones of each kind, ordinary patterns, and those that take most compilers very long."""
    ordinary = tuple(b"0" + pattern.encode() for pattern in PATTERNS)
    hostile = tuple(_written(kind, source) for kind, source in HOSTILE.values())
    return Target(SEEDS + ordinary + hostile, WORDS, _compiling, most_bytes=2048)


def _written(kind: str, source: object) -> bytes:
    text = source if isinstance(source, str) else json.dumps(source)
    return b"%d" % KINDS.index(kind) + text.encode()


def _compiling() -> Run:
    with TemporaryDirectory() as folder:
        path = write_tiny_gguf(Path(folder, "tiny.gguf"), shape=TinyShape(layers=1, width=32, feed_forward=32))
        tokenizer = Tokenizer(load_gguf(path).vocabulary)
    compiler = ConstraintCompiler(tokenizer)

    def run(data: bytes) -> None:
        with contextlib.suppress(ConstraintError):
            spec = _spec(data)
            if spec is None:
                return
            ids = random_ids(compiler.compile(spec).fitted(LIMIT), LIMIT, seed=0)
            _check(spec, text_of(tokenizer, ids))

    return run


def _check(spec: ConstraintSpec, text: str) -> None:
    """That a text keeps the form, where another judge is at hand."""
    match spec.kind, spec.source:
        case "choice", tuple(texts):
            assert text in texts
        case "json_schema", _:
            json.loads(text)
        case _:
            pass


def _spec(data: bytes) -> ConstraintSpec | None:
    """None where a body could not have held it. Raises ConstraintError."""
    kind = KINDS[data[0] % len(KINDS)] if data else "regex"
    with contextlib.suppress(UnicodeDecodeError):
        text = data[1:].decode()
        if kind == "regex":
            return ConstraintSpec.regex(text)
        return ConstraintSpec.grammar(text) if kind == "grammar" else _of_json(kind, data[1:])
    return None


def _of_json(kind: str, raw: bytes) -> ConstraintSpec | None:
    try:
        value = parse(raw)
    except ServiceError:
        return None
    if kind == "choice":
        is_choice = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return ConstraintSpec.choice(tuple(value)) if is_choice else None
    return ConstraintSpec.json_schema(value) if isinstance(value, dict) else None
