"""From a `ConstraintSpec` to a grammar that sequences can begin with.

Knows llguidance's forms and limits. Always: whatever is compiled has a first token, and a completion is known; what is
too complex is refused after a bounded amount of work.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import llguidance
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from model.decoding.constraint.completion import Budget, ChoiceCompletion, Completion, Found, GrammarCompletion
from model.decoding.constraint.errors import ConstraintError
from model.decoding.constraint.mask import TokenMask
from model.decoding.constraint.messages import compile_error
from model.decoding.constraint.schema_rules import patterns_of
from model.decoding.constraint.spec import JSON_WHITESPACE, ConstraintSpec
from model.decoding.constraint.state import Constraint
from model.decoding.constraint.vocabulary import NEVER, Spelling, Tokenizer, byte_vocabulary, token_vocabulary

CONSTRAINT_VERSION = f"1-llguidance-{llguidance.__version__}"
"""Changes with whatever may change a constrained text: the number with this package, the rest with the library."""

FIRST_STEPS = 8000
"""Steps of the search for a first completion."""
FITTING_STEPS, FITTING_CHANGES = 12_000, 400
"""Bounds of the search for one that fits a limit."""
MAX_HINTS, EXAMPLE_STEPS = 32, 200

_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.){1,64})"')
_WORDS = re.compile(r"(?:[A-Za-z0-9 _</>,;:!=-]|\\[^A-Za-z0-9]){1,64}")


def _limits() -> LLParserLimits:
    """Small enough that any grammar is compiled or refused in a fraction of a second."""
    return LLParserLimits(
        max_grammar_size=50_000,
        initial_lexer_fuel=200_000,
        step_lexer_fuel=50_000,
        step_max_items=20_000,
        max_lexer_states=20_000,
        verbose_errors=False,
    )


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A constraint for any number of sequences. Immutable; any thread may begin one with it."""

    spec: ConstraintSpec
    banned: tuple[int, ...]
    """Ids that are never generated, ascending."""
    _tokens: LLMatcher = field(compare=False, repr=False)
    _bytes: LLMatcher = field(compare=False, repr=False)
    _mask: TokenMask = field(compare=False, repr=False)
    _vocabulary: Sequence[bytes] = field(compare=False, repr=False)
    _completion: Completion = field(compare=False, repr=False)
    _first: Found = field(compare=False, repr=False)

    def begin(self, max_new_tokens: int) -> Constraint:
        """The state of a sequence without a token. Raises ConstraintError when no text of so few tokens is known."""
        return Constraint(
            tokens=self._tokens.deep_copy(),
            single_bytes=self._bytes.deep_copy(),
            mask=self._mask,
            vocabulary=self._vocabulary,
            completion=self._completion,
            witness=self.fitting(max_new_tokens),
            max_new_tokens=max_new_tokens,
        )

    def fitting(self, max_new_tokens: int) -> Found:
        """A first completion of at most so many tokens. Raises ConstraintError when none is found."""
        if self._first.spelled.counts[0] <= max_new_tokens:
            return self._first
        budget = Budget(FITTING_STEPS, FITTING_CHANGES)
        found = self._completion.find(self._bytes, b"", max_new_tokens, budget, self._first.preference)
        if found is None:
            raise ConstraintError(
                f"no text of at most {max_new_tokens} tokens was found that fits it",
                code="limit_too_small",
                field=self.spec.kind,
            )
        return found


class ConstraintCompiler:
    """Compiles constraints for one tokenizer. Any thread may call it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes some tenths of a second."""
        self._vocabulary = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocabulary_size)]
        self._eos_token_ids = tokenizer.eos_token_ids
        self._silent = tokenizer.control_token_ids | tokenizer.eos_token_ids
        self._token_vocabulary = token_vocabulary(tokenizer)
        self._byte_vocabulary = byte_vocabulary()
        self._spelling = self._spelling_without(frozenset())
        self._spells_every_byte = all(self._spelling.spell(bytes([byte])).counts[0] < NEVER for byte in range(256))

    def compile(self, spec: ConstraintSpec, banned: Sequence[int] = ()) -> CompiledConstraint:
        """Raises ConstraintError when the grammar is wrong, too complex or empty, or cannot do without `banned`."""
        forbidden = frozenset(banned)
        if self._eos_token_ids <= forbidden:
            raise ConstraintError("the end of the text is banned", code="invalid_combination", field=spec.kind)
        # A canonical spelling of what is certain needs all its tokens.
        forces = not forbidden and self._spells_every_byte
        spelling = self._spelling if not forbidden else self._spelling_without(forbidden)
        completion = self._completion(spec, spelling)
        state = self._matcher(spec, self._byte_vocabulary, forces=True)
        first = completion.shortest(state, Budget(FIRST_STEPS))
        if first is None or first.spelled.counts[0] >= NEVER:
            code = "grammar_too_complex" if first is None else "invalid_combination"
            raise ConstraintError("no text was found that fits it", code=code, field=spec.kind)
        mask = TokenMask(len(self._vocabulary), self._silent | forbidden, self._eos_token_ids - forbidden)
        return CompiledConstraint(
            spec,
            tuple(sorted(forbidden)),
            _tokens=self._matcher(spec, self._token_vocabulary, forces=forces),
            _bytes=state,
            _mask=mask,
            _vocabulary=self._vocabulary,
            _completion=completion,
            _first=first,
        )

    def _matcher(self, spec: ConstraintSpec, vocabulary: LLTokenizer, *, forces: bool) -> LLMatcher:
        """A matcher that has made its first mask: it is lazy, and only then is it known to work."""
        matcher = LLMatcher(vocabulary, _grammar(spec, forces=forces), log_level=0, limits=_limits())
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise compile_error(spec, matcher.get_error())
        return matcher

    def _completion(self, spec: ConstraintSpec, spelling: Spelling) -> Completion:
        if isinstance(spec.source, tuple):
            return ChoiceCompletion(spelling, [text.encode() for text in spec.source])
        return GrammarCompletion(spelling, list(dict.fromkeys(self._hints(spec)))[:MAX_HINTS])

    def _hints(self, spec: ConstraintSpec) -> Iterator[bytes]:
        """Texts that a free text may have to hold: the longest words of a grammar, examples of a schema's patterns."""
        if spec.kind == "json_schema":
            for pattern in islice(patterns_of(json.loads(str(spec.source))), MAX_HINTS):
                if (example := self._example(pattern)) is not None:
                    yield json.dumps(example.decode(errors="replace"), ensure_ascii=False)[1:-1].encode()
            return
        words = (_LITERAL if spec.kind == "grammar" else _WORDS).findall(str(spec.source))
        for word in sorted((re.sub(r"\\(.)", r"\1", word) for word in words), key=len, reverse=True):
            yield word.encode()

    def _example(self, pattern: str) -> bytes | None:
        """A text that matches; None when the pattern is wrong, or none is found at once."""
        spec = ConstraintSpec("regex", pattern)
        try:
            state = self._matcher(spec, self._byte_vocabulary, forces=True)
        except ConstraintError:
            return None
        found = GrammarCompletion(self._spelling).shortest(state, Budget(EXAMPLE_STEPS))
        return None if found is None else found.spelled.text

    def _spelling_without(self, forbidden: frozenset[int]) -> Spelling:
        excluded = self._silent | forbidden
        return Spelling(self._vocabulary, (i for i in range(len(self._vocabulary)) if i not in excluded))


def _grammar(spec: ConstraintSpec, *, forces: bool) -> str:
    """The constraint as llguidance's Lark. `forces`: where the text is certain, only its usual tokens are allowed."""
    options = "" if forces else '%llguidance {"no_forcing": true}\n'
    if spec.kind == "choice":
        return options + "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in spec.source)
    source = str(spec.source)
    if spec.kind == "grammar":
        return options + source
    if spec.kind == "regex":
        (grammar,) = json.loads(LLMatcher.grammar_from_regex(source))["grammars"]
        return options + str(grammar["lark_grammar"])
    guidance = json.dumps({"whitespace_pattern": JSON_WHITESPACE})
    rest = source[1:] if source == "{}" else "," + source[1:]
    return f'{options}start: %json {{"x-guidance":{guidance}{rest}'
