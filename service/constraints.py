"""From the constraint of a body to a compiled one, and the cache of what was compiled.

Knows fields and clashes; knows no grammar. Slow: call it off the event loop.
Always: two requests share nothing that changes, and two API keys nothing that was compiled; the cache is bounded in
entries and in bytes of source; and one thread compiles at a time, so that hostile grammars take one core and no more.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from model.decoding.constraint import (
    CompiledConstraint,
    ConstraintCompiler,
    ConstraintError,
    ConstraintSpec,
)
from model.tokenizer import Tokenizer
from service.context import ServedModel
from service.errors import InvalidField
from service.schemas import Constraint, GenerateRequest

MAX_ENTRIES = 64
MAX_BYTES = 1 << 20
KINDS = tuple(Constraint.model_fields)
NO_END_OF_ITS_OWN: Mapping[str, Any] = {"ignore_eos": False, "stop": [], "stop_token_ids": [], "min_new_tokens": 0}
"""Fields that say where a text ends, and the values of them that a constraint goes with."""

Entry = tuple[ConstraintSpec, tuple[int, ...], str | None]
"""What was compiled, without which tokens, and for which API key: what one key asks is not felt by another."""


class ConstraintCache:
    """Compiled constraints, the least recently used dropped first. Any thread may call it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        make_lock: Callable[[], AbstractContextManager[object]],
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """The compiler is made when it is first needed, since it takes a tenth of a second."""
        self._tokenizer = tokenizer
        self._compiler: ConstraintCompiler | None = None
        self._entries: OrderedDict[Entry, CompiledConstraint | ConstraintError] = OrderedDict()
        self._entries_lock, self._compiler_lock = make_lock(), make_lock()
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def compiled(self, spec: ConstraintSpec, banned: Sequence[int], key_id: str | None = None) -> CompiledConstraint:
        """One for a single request of this API key. Raises ConstraintError."""
        entry = spec, tuple(sorted(set(banned))), key_id
        found = self._found(entry)
        if found is None:
            with self._compiler_lock:
                found = self._found(entry) or self._made(entry)
        if isinstance(found, ConstraintError):
            raise found.with_traceback(None)
        return found.renewed()

    def clear(self) -> None:
        """Keep none of them."""
        with self._entries_lock:
            self._entries.clear()

    def _made(self, entry: Entry) -> CompiledConstraint | ConstraintError:
        """Compiled now. A refusal is kept too: it may have taken as long."""
        if self._compiler is None:
            self._compiler = ConstraintCompiler(self._tokenizer)
        made: CompiledConstraint | ConstraintError
        try:
            spec, banned, _ = entry
            made = self._compiler.compile(spec, banned)
        except ConstraintError as error:
            made = error.with_traceback(None)
        self._keep(entry, made)
        return made

    def _found(self, entry: Entry) -> CompiledConstraint | ConstraintError | None:
        with self._entries_lock:
            found = self._entries.get(entry)
            if found is not None:
                self._entries.move_to_end(entry)
            return found

    def _keep(self, entry: Entry, made: CompiledConstraint | ConstraintError) -> None:
        with self._entries_lock:
            self._entries[entry] = made
            while len(self._entries) > self._max_entries or self._source_bytes() > self._max_bytes:
                self._entries.popitem(last=False)

    def _source_bytes(self) -> int:
        return sum(spec.source_bytes for spec, *_ in self._entries)


def compile_constraint(
    body: GenerateRequest, constraint: Constraint, model: ServedModel, new_tokens: int, key_id: str | None
) -> CompiledConstraint:
    """The constraint of a body whose limit is `new_tokens`. Raises InvalidField."""
    _check_clashes(body)
    kind = _kind(constraint)
    try:
        spec = getattr(ConstraintSpec, kind)(getattr(constraint, kind))
        return model.constraints.compiled(spec, body.banned_token_ids, key_id).fitted(new_tokens)
    except ConstraintError as error:
        # Of the fields that a constraint can clash with, the compiler is told of the banned tokens alone.
        clashes = error.code == "invalid_combination" and body.banned_token_ids
        message = f"{error}; it clashes with banned_token_ids" if clashes else str(error)
        raise InvalidField(message, code=error.code, param=error.param) from error


def _kind(constraint: Constraint) -> str:
    given = [kind for kind in KINDS if getattr(constraint, kind) is not None]
    if not given:
        raise InvalidField("one kind of constraint is needed", code="missing", param="constraint", allowed=KINDS)
    if len(given) > 1:
        raise InvalidField(
            "only one kind of constraint may be given",
            code="invalid_combination",
            param=f"constraint.{given[1]}",
            allowed=KINDS,
        )
    return given[0]


def _check_clashes(body: GenerateRequest) -> None:
    """The form alone says where a constrained text ends."""
    for field, harmless in NO_END_OF_ITS_OWN.items():
        if getattr(body, field):
            raise InvalidField(
                f"{field} cannot be used together with constraint",
                code="invalid_combination",
                param=field,
                allowed={"enum": [harmless]},
            )
