"""Constraints at the door: clashes, refusals, the cache, the worker thread and the fingerprint."""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from model.decoding.constraint import CONSTRAINT_VERSION, ConstraintCompiler, ConstraintError, ConstraintSpec
from service.beside import read_beside, worker_lock
from service.constraints import ConstraintCache
from service.domain import read_generate
from service.errors import InvalidField
from service.json_body import parse
from service.request import GenerationRequest
from service.schemas import GenerateRequest, read
from tests.fake_runtime import CONTEXT_LENGTH, ENGINE_INFO, MODEL, TOKENIZER, FakeRuntime
from tests.service.door import Client

REGEX = ConstraintSpec.regex("a+")


def request_of(**fields: Any) -> GenerationRequest:
    body = read(GenerateRequest, parse(json.dumps({"prompt": "abc", "seed": 1, **fields}).encode()))
    return read_generate(body, MODEL, CONTEXT_LENGTH, "r1").request


def error_of(**fields: Any) -> InvalidField:
    with pytest.raises(InvalidField) as caught:
        request_of(**fields)
    return caught.value


def make_cache(**limits: int) -> ConstraintCache:
    return ConstraintCache(TOKENIZER, make_lock=worker_lock, **limits)


@pytest.mark.parametrize(
    "constraint",
    [{"json_schema": {"type": "integer"}}, {"regex": "[0-9]+"}, {"choice": ["1", "2"]}, {"grammar": "start: /[0-9]/"}],
    ids=lambda constraint: next(iter(constraint)),
)
def test_each_kind_reaches_the_request(constraint: Mapping[str, Any]) -> None:
    compiled = request_of(constraint=constraint).constraint

    assert compiled is not None
    assert next(iter(constraint)) == compiled.spec.kind


@pytest.mark.parametrize(
    ("field", "value"),
    [("ignore_eos", True), ("stop", ["x"]), ("stop_token_ids", [5]), ("min_new_tokens", 1)],
)
def test_what_says_otherwise_where_a_text_ends_clashes(field: str, value: Any) -> None:
    error = error_of(constraint={"regex": "a+"}, **{field: value})

    assert (422, "invalid_combination", field) == (error.status, error.code, error.param)
    assert [type(value)()] == error.allowed["enum"]


def test_a_constraint_that_clashes_with_banned_tokens_says_so() -> None:
    error = error_of(constraint={"choice": ["a"]}, banned_token_ids=sorted(TOKENIZER.eos_token_ids))

    assert (422, "invalid_combination", "constraint.choice") == (error.status, error.code, error.param)
    assert error.message.endswith("; it clashes with banned_token_ids")


@pytest.mark.parametrize(
    ("constraint", "code", "param"),
    [
        ({}, "missing", "constraint"),
        ({"regex": None}, "missing", "constraint"),
        ({"regex": "a", "choice": ["a"]}, "invalid_combination", "constraint.choice"),
        ({"choice": []}, "empty", "constraint.choice"),
        ({"regex": "ab("}, "invalid_grammar", "constraint.regex"),
        ({"regex": "[^\\s\\S]"}, "invalid_grammar", "constraint.regex"),
        ({"json_schema": {"items": {"$ref": "http://a/b"}}}, "remote_reference", "constraint.json_schema.items.$ref"),
        ({"regex": "a{62}"}, "limit_too_small", "constraint.regex"),
    ],
)
def test_a_constraint_that_cannot_be_used_is_refused_by_name(
    constraint: Mapping[str, Any], code: str, param: str
) -> None:
    error = error_of(constraint=constraint)

    assert (422, code, param) == (error.status, error.code, error.param)


def test_a_constraint_that_just_fits_the_limit_is_accepted() -> None:
    assert request_of(constraint={"regex": "a{61}"}).constraint is not None


def test_a_refusal_names_the_position() -> None:
    assert "line 1, column 3" in error_of(constraint={"regex": "ab("}).message


def test_without_a_constraint_there_is_none() -> None:
    assert request_of(constraint=None).constraint is None


def test_two_requests_share_nothing_that_changes() -> None:
    """What one sequence meets stays in its lexer: another request must not find it there."""
    cache = make_cache()

    assert cache.compiled(REGEX, ()) == cache.compiled(REGEX, ())
    assert cache.compiled(REGEX, ())._tokens is not cache.compiled(REGEX, ())._tokens


class CountingCompiler(ConstraintCompiler):
    """Counts what it compiles."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER)
        self.count = 0

    def compile(self, *arguments: Any) -> Any:
        self.count += 1
        return super().compile(*arguments)


def counting(cache: ConstraintCache) -> CountingCompiler:
    compiler = CountingCompiler()
    cache._compiler = compiler
    return compiler


def test_what_was_compiled_is_compiled_once() -> None:
    cache = make_cache()
    compiler = counting(cache)
    for _ in range(3):
        cache.compiled(REGEX, ())
        cache.compiled(REGEX, (5, 4))
        cache.compiled(REGEX, (4, 5, 5))

    assert 2 == compiler.count


def test_what_one_key_had_compiled_takes_another_as_long() -> None:
    """Else its time would tell who else asks for the same."""
    cache = make_cache()
    compiler = counting(cache)
    for key_id in ("a", "b", None, "a", "b"):
        cache.compiled(REGEX, (), key_id)

    assert 3 == compiler.count


def test_what_was_refused_is_refused_again_without_compiling() -> None:
    cache = make_cache()
    compiler = counting(cache)
    for _ in range(3):
        with pytest.raises(ConstraintError):
            cache.compiled(ConstraintSpec.regex("("), ())

    assert 1 == compiler.count


def test_past_its_entries_the_cache_drops_what_was_unused_longest() -> None:
    cache = make_cache(max_entries=2)
    compiler = counting(cache)
    for pattern in ("a", "b", "a", "c", "a", "b"):
        cache.compiled(ConstraintSpec.regex(pattern), ())

    assert ["a", "b"] == sorted(str(spec.source) for spec, *_ in cache._entries)
    assert 4 == compiler.count


def test_past_its_bytes_the_cache_drops_too() -> None:
    cache = make_cache(max_bytes=10)
    for pattern in ("aaaaaa", "bbbb", "cccccc"):
        cache.compiled(ConstraintSpec.regex(pattern), ())

    assert ["bbbb", "cccccc"] == [spec.source for spec, *_ in cache._entries]


def test_what_is_larger_than_the_cache_is_compiled_and_not_kept() -> None:
    cache = make_cache(max_bytes=3)

    assert "aaaa" == cache.compiled(ConstraintSpec.regex("aaaa"), ()).spec.source
    assert not cache._entries


def test_many_threads_compile_one_constraint_once() -> None:
    cache = make_cache()
    compiler = counting(cache)
    threads = [threading.Thread(target=cache.compiled, args=(REGEX, ())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == compiler.count


def test_the_compiler_is_made_when_it_is_needed() -> None:
    cache = make_cache()
    before = cache._compiler
    cache.compiled(REGEX, ())

    assert before is None
    assert cache._compiler is not None


@pytest.mark.parametrize(
    ("raw", "beside"),
    [
        (b'{"prompt": "a"}', False),
        (b'{"prompt": "a", "constraint": {"regex": "a"}}', True),
        (b'{"prompt": "a", "\\u0063onstraint": {"regex": "a"}}', True),
        (b'{"messages": [], "response_format": {}}', True),
        (b'{"prompt": "' + b"a" * 9000 + b'"}', True),
    ],
    ids=["plain", "constraint", "escaped", "response_format", "long"],
)
def test_a_body_with_a_constraint_is_read_off_the_event_loop(raw: bytes, beside: bool) -> None:
    thread = asyncio.run(read_beside(lambda body: threading.get_ident(), raw))

    assert beside is (thread != threading.get_ident())


def test_the_fingerprint_names_what_makes_the_masks() -> None:
    answer = Client(FakeRuntime()).post("/generate", {"prompt": "a", "constraint": {"choice": ["a"]}})

    assert f"{ENGINE_INFO.fingerprint}-constraint-{CONSTRAINT_VERSION}" == answer.json["reproducibility"]["fingerprint"]
    assert "llguidance" in CONSTRAINT_VERSION


def test_without_a_constraint_the_fingerprint_is_the_engines() -> None:
    answer = Client(FakeRuntime()).post("/generate", {"prompt": "a"})

    assert ENGINE_INFO.fingerprint == answer.json["reproducibility"]["fingerprint"]


def test_a_refusal_is_a_422() -> None:
    answer = Client().post("/generate", {"prompt": "a", "constraint": {"regex": "("}})

    assert (422, "constraint.regex") == (answer.status, answer.error["param"])
