"""From a `ConstraintSpec` to a grammar that sequences can begin with.

Always: whatever is compiled has a first token, and a completion is known; what is
too complex is refused after a bounded amount of work.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import llguidance
from llguidance import LLMatcher

from model.decoding.constraint.completion import ChoiceCompletion, Completion, Found, GrammarCompletion
from model.decoding.constraint.errors import ConstraintError
from model.decoding.constraint.example import MAX_CHARACTERS, example_of
from model.decoding.constraint.grammar import MAX_LEXER_STATES, Grammar
from model.decoding.constraint.mask import TokenMask
from model.decoding.constraint.messages import TOO_COMPLEX, TOO_LONG
from model.decoding.constraint.schema_rules import parts_of, patterns_of
from model.decoding.constraint.spec import ConstraintSpec
from model.decoding.constraint.state import Constraint
from model.decoding.constraint.usual import UsualSpellings
from model.decoding.constraint.vocabulary import NEVER, Spelling, Tokenizer, byte_vocabulary, token_vocabulary
from model.decoding.constraint.walk import Budget, GrammarExhaustedError, Hints

CONSTRAINT_VERSION = f"2-llguidance-{llguidance.__version__}"
"""Changes with whatever may change a constrained text: the number with this package, the rest with the library."""

FIRST_STEPS = 8000
"""Steps of the search for a first completion."""
FITTING_STEPS, FITTING_CHANGES = 8000, 150
"""Bounds of the search for one that fits a limit."""
MAX_HINTS = 32
MAX_PLACES = 40
"""Parts of a schema that are compiled by themselves to tell which is wrong."""
EXAMPLE_STEPS, EXAMPLES_STEPS = 1500, 4000
"""Of the search for a text that a schema's pattern matches, and for all of them together."""

_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.){1,64})"')
_WORDS = re.compile(r"(?:[A-Za-z0-9 _</>,;:!=-]|[^\x00-\x7f]|\\[^A-Za-z0-9]){1,64}")


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A constraint for any number of sequences. Immutable; any thread may begin one with it.

    Its sequences share what their lexers have met: give each request one that was `renewed`.
    """

    spec: ConstraintSpec
    banned: tuple[int, ...]
    """Ids that are never generated, ascending."""
    _grammar: Grammar = field(compare=False, repr=False)
    _tokens: LLMatcher = field(compare=False, repr=False)
    _bytes: LLMatcher = field(compare=False, repr=False)
    _mask: TokenMask = field(compare=False, repr=False)
    _vocabulary: Sequence[bytes] = field(compare=False, repr=False)
    _usual: UsualSpellings = field(compare=False, repr=False)
    _completion: Completion = field(compare=False, repr=False)
    _first: Found = field(compare=False, repr=False)

    def begin(self, max_new_tokens: int) -> Constraint:
        """The state of a sequence without a token. Raises ConstraintError when no text of so few tokens is known."""
        return Constraint(
            grammar=self._grammar,
            tokens=self._tokens.deep_copy(),
            single_bytes=self._bytes.deep_copy(),
            mask=self._mask,
            vocabulary=self._vocabulary,
            usual=self._usual,
            completion=self._completion,
            witness=self.fitting(max_new_tokens),
            max_new_tokens=max_new_tokens,
        )

    def renewed(self) -> "CompiledConstraint":
        """The same constraint, sharing nothing that changes with this one. Costs a compilation and no search."""
        return replace(self, _tokens=self._grammar.tokens(), _bytes=self._grammar.single_bytes())

    def fitted(self, max_new_tokens: int) -> "CompiledConstraint":
        """The same constraint, with what `begin` would search for such a limit found. Raises as `fitting`."""
        found = self.fitting(max_new_tokens)
        if found is self._first:
            return self
        # What the search met must not stay in memory with the request.
        return replace(self, _first=found, _bytes=self._grammar.single_bytes())

    def fitting(self, max_new_tokens: int) -> Found:
        """A first completion of at most so many tokens. Raises ConstraintError when none is found."""
        if self._first.spelled.counts[0] <= max_new_tokens:
            return self._first
        budget = Budget(FITTING_STEPS, FITTING_CHANGES)
        try:
            found = self._completion.find(self._bytes, b"", max_new_tokens, budget, self._first.preference)
        except GrammarExhaustedError:
            found = None
        if found is None:
            raise ConstraintError(
                f"no text of at most {max_new_tokens} tokens was found that fits it",
                code="limit_too_small",
                field=self.spec.kind,
            )
        return found


class ConstraintCompiler:
    """Compiles constraints for one tokenizer. Any thread may call it."""

    def __init__(self, tokenizer: Tokenizer, *, max_lexer_states: int = MAX_LEXER_STATES) -> None:
        """Takes some tenths of a second."""
        self._max_lexer_states = max_lexer_states
        self._vocabulary = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocabulary_size)]
        self._eos_token_ids = tokenizer.eos_token_ids
        self._silent = tokenizer.control_token_ids | tokenizer.eos_token_ids
        self._token_vocabulary = token_vocabulary(tokenizer)
        self._byte_vocabulary = byte_vocabulary()
        self._spelling = Spelling(self._vocabulary, self._silent)
        # The bytes that no token holds can never be certain: no completion has them.
        self._spells_every_byte = all(
            self._spelling.spell(bytes([byte])).counts[0] < NEVER for byte in self._spelling.bytes_held
        )
        self._encode = tokenizer.encode_continuation

    def compile(self, spec: ConstraintSpec, banned: Sequence[int] = ()) -> CompiledConstraint:
        """Raises ConstraintError when the grammar is wrong, too complex or empty, or cannot do without `banned`."""
        forbidden = frozenset(banned)
        if self._eos_token_ids <= forbidden:
            raise ConstraintError("the end of the text is banned", code="invalid_combination", field=spec.kind)
        # A canonical spelling of what is certain needs all its tokens.
        forces = not forbidden and self._spells_every_byte
        completion = self._completion(spec, self._spelling.without(forbidden))
        grammar = self._grammar(spec, forces=forces)
        try:
            state = grammar.single_bytes()
        except ConstraintError as error:
            raise self._placed(spec, error) from error
        first = self._first(spec, completion, state)
        usual = UsualSpellings(self._usual(spec.source) if forces and isinstance(spec.source, tuple) else ())
        mask = TokenMask(len(self._vocabulary), self._silent | forbidden, self._eos_token_ids - forbidden)
        return CompiledConstraint(
            spec,
            tuple(sorted(forbidden)),
            _grammar=grammar,
            _tokens=grammar.tokens(),
            _bytes=grammar.single_bytes(),
            _mask=mask,
            _vocabulary=self._vocabulary,
            _usual=usual,
            _completion=completion,
            _first=first,
        )

    def _placed(self, spec: ConstraintSpec, error: ConstraintError) -> ConstraintError:
        """The error at the part of a schema that has it by itself, the innermost of the first few."""
        if spec.kind != "json_schema":
            return error
        schema = json.loads(str(spec.source))
        for pattern, path in islice(patterns_of(schema, spec.kind), MAX_PLACES):
            if (wrong := self._wrong(ConstraintSpec("regex", pattern))) is not None:
                return wrong.at(path)
        definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        for part, path in reversed(list(islice(parts_of(schema, spec.kind), MAX_PLACES))):
            alone = json.dumps(dict(part) | definitions, ensure_ascii=False)
            wrong = self._wrong(ConstraintSpec("json_schema", alone))
            if wrong is not None and wrong.problem == error.problem:
                keyword = next(
                    (name for name in ("oneOf", "allOf", "anyOf") if name in part and name in wrong.problem), ""
                )
                return error.at(f"{path}.{keyword}".rstrip("."))
        return error

    def _wrong(self, spec: ConstraintSpec) -> ConstraintError | None:
        try:
            self._grammar(spec, forces=True).single_bytes()
        except ConstraintError as error:
            return error
        return None

    def _first(self, spec: ConstraintSpec, completion: Completion, state: LLMatcher) -> Found:
        try:
            first = completion.shortest(state, Budget(FIRST_STEPS))
        except GrammarExhaustedError:
            raise ConstraintError(TOO_COMPLEX, code="grammar_too_complex", field=spec.kind) from None
        if first is None:
            raise ConstraintError(
                "the search for a text that fits it ended without one", code="no_completion_found", field=spec.kind
            )
        if first.spelled.counts[0] >= NEVER:
            problem = "no text was found that fits it and that the allowed tokens spell"
            raise ConstraintError(problem, code="invalid_combination", field=spec.kind)
        return first

    def _grammar(self, spec: ConstraintSpec, *, forces: bool) -> Grammar:
        return Grammar(spec, self._token_vocabulary, self._byte_vocabulary, self._max_lexer_states, forces)

    def _usual(self, texts: Iterable[str]) -> Iterator[list[int]]:
        for text in texts:
            if self._spelling.bytes_held.issuperset(text.encode()):
                spelling = self._encode(text)
                if self._silent.isdisjoint(spelling) and b"".join(map(self._vocabulary.__getitem__, spelling)) == (
                    text.encode()
                ):
                    yield spelling

    def _completion(self, spec: ConstraintSpec, spelling: Spelling) -> Completion:
        if isinstance(spec.source, tuple):
            return ChoiceCompletion(spelling, [text.encode() for text in spec.source])
        hints = list(dict.fromkeys(self._hints(spec)))[:MAX_HINTS]
        self._check_sizes(spec)
        example = example_of(spec.source) if spec.kind == "regex" else None
        text = b"" if example is None else example.text.encode()
        return GrammarCompletion(spelling, Hints.of(hints, spec.source.encode(), text))

    def _check_sizes(self, spec: ConstraintSpec) -> None:
        patterns = [(str(spec.source), str(spec.kind))] if spec.kind == "regex" else []
        if spec.kind == "json_schema":
            patterns = list(patterns_of(json.loads(str(spec.source)), spec.kind))
        for pattern, path in patterns:
            example = example_of(pattern)
            if example is not None and example.size > MAX_CHARACTERS:
                raise ConstraintError(TOO_LONG, code="grammar_too_complex", field=path)

    def _hints(self, spec: ConstraintSpec) -> Iterator[bytes]:
        """Texts that a free text may have to hold: the longest words of a grammar, examples of a schema's patterns."""
        if spec.kind == "json_schema":
            patterns = dict.fromkeys(pattern for pattern, _ in patterns_of(json.loads(str(spec.source)), spec.kind))
            left = EXAMPLES_STEPS
            for pattern in islice(patterns, MAX_HINTS):
                budget = Budget(min(EXAMPLE_STEPS, left))
                left -= budget.steps
                example = self._example(pattern, budget)
                left += budget.steps
                if example is not None:
                    yield json.dumps(example.decode(errors="replace"), ensure_ascii=False)[1:-1].encode()
            return
        words = (_LITERAL if spec.kind == "grammar" else _WORDS).findall(str(spec.source))
        for word in sorted((re.sub(r"\\(.)", r"\1", word) for word in words), key=len, reverse=True):
            yield word.encode()

    def _example(self, pattern: str, budget: Budget) -> bytes | None:
        """A text that matches, or may; None when the pattern is wrong, or none is found at once."""
        if (example := example_of(pattern)) is not None:
            return example.text.encode()
        try:
            state = self._grammar(ConstraintSpec("regex", pattern), forces=True).single_bytes()
            found = GrammarCompletion(self._spelling, Hints.of((), pattern.encode())).shortest(state, budget)
        except (ConstraintError, GrammarExhaustedError):
            return None
        return None if found is None else found.spelled.text
