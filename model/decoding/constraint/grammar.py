"""One constraint as llguidance's grammar, over the model's vocabulary and over single bytes.

Knows llguidance's forms and limits. Always: a matcher has made its first mask before anyone gets it, since llguidance
is lazy and only then is it known to work; and two of them share nothing that changes, while copies of one share a
lexer, which keeps every state that any of them has met and has room for so many.
"""

import json
from dataclasses import dataclass

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from model.decoding.constraint.formats import with_patterns
from model.decoding.constraint.messages import compile_error
from model.decoding.constraint.spec import JSON_WHITESPACE, ConstraintSpec

MAX_LEXER_STATES = 20_000
"""Of one or two kilobytes each."""
STEP_MAX_ITEMS = 2_000
"""Of the parser in one step, some ten milliseconds at most: an ambiguous grammar holds up every other text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Makes matchers in their first state. Any thread may call it."""

    spec: ConstraintSpec
    token_vocabulary: LLTokenizer
    byte_vocabulary: LLTokenizer
    max_lexer_states: int
    forces: bool
    """Whether only the usual tokens are allowed where the text is certain."""

    def tokens(self) -> LLMatcher:
        """Over the model's vocabulary. Raises ConstraintError."""
        return self._matcher(self.token_vocabulary, _lark(self.spec, forces=self.forces))

    def single_bytes(self) -> LLMatcher:
        """Over bytes. Raises ConstraintError."""
        return self._matcher(self.byte_vocabulary, _lark(self.spec, forces=True))

    def _matcher(self, vocabulary: LLTokenizer, lark: str) -> LLMatcher:
        matcher = LLMatcher(vocabulary, lark, log_level=0, limits=_limits(self.max_lexer_states))
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise compile_error(self.spec, matcher.get_error())
        return matcher


def _limits(max_lexer_states: int) -> LLParserLimits:
    """Small enough that any grammar is compiled or refused in a fraction of a second."""
    return LLParserLimits(
        max_grammar_size=50_000,
        initial_lexer_fuel=200_000,
        step_lexer_fuel=50_000,
        step_max_items=STEP_MAX_ITEMS,
        max_lexer_states=max_lexer_states,
        verbose_errors=False,
    )


def _lark(spec: ConstraintSpec, *, forces: bool) -> str:
    """The constraint as llguidance's Lark."""
    options = "" if forces else '%llguidance {"no_forcing": true}\n'
    if spec.kind == "choice":
        return options + "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in spec.source)
    source = str(spec.source)
    if spec.kind == "grammar":
        return options + source
    if spec.kind == "regex":
        (grammar,) = json.loads(LLMatcher.grammar_from_regex(source))["grammars"]
        return options + str(grammar["lark_grammar"])
    schema = {"x-guidance": {"whitespace_pattern": JSON_WHITESPACE}} | with_patterns(json.loads(source))
    return f"{options}start: %json {json.dumps(schema, ensure_ascii=False)}"
