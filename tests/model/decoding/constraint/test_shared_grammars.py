"""What sequences of one grammar share must change none of them, and none may hold up the others."""

from typing import Any

import numpy as np
import pytest

from model.decoding.constraint import Constraint, ConstraintCompiler, ConstraintSpec, grammar
from model.tokenizer import Tokenizer
from tests.tiny_vocabulary import tiny_vocabulary

TOKENIZER = Tokenizer(tiny_vocabulary())
COMPILER = ConstraintCompiler(TOKENIZER)


def test_a_long_text_outlives_what_its_siblings_met() -> None:
    """Their shared lexer runs full; what each begins with then takes the whole text so far, however long it is."""
    compiled = COMPILER.compile(ConstraintSpec.regex("(a|b)*a(a|b){24}"))
    rng, letters = np.random.default_rng(0), [TOKENIZER.encode(letter)[0] for letter in "ab"]
    siblings = [compiled.begin(2600) for _ in range(4)]

    for _ in range(2500):
        for each in siblings:
            each.mask()
            each.advance(each.settle(int(rng.choice(letters)), each.left))

    assert [False] * 4 == [each.failed for each in siblings]


def test_an_ambiguous_grammar_gives_up_before_its_steps_grow_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token adds ways to read what came; no step may hold up the other texts. The text ends along its witness."""
    monkeypatch.setattr(grammar, "STEP_MAX_ITEMS", 300)
    constraint = COMPILER.compile(ConstraintSpec.grammar('start: s\ns: "a" | s s | "b"\n')).begin(2000)
    letter = TOKENIZER.encode("a")[0]
    taken = 0
    while not constraint.ended:
        constraint.mask()
        constraint.advance(constraint.settle(letter, constraint.left))
        taken += 1

    assert not constraint.failed
    assert 50 < taken < 100


def test_a_token_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the sampler does it: settle, take nothing back, and later advance."""
    constraint = COMPILER.compile(ConstraintSpec.regex("[a-z]{9}")).begin(9)
    asked: list[int] = []
    after = Constraint._after

    def counted(self: Constraint, token_id: int, left: int) -> Any:
        asked.append(token_id)
        return after(self, token_id, left)

    monkeypatch.setattr(Constraint, "_after", counted)

    token_id = constraint.settle(TOKENIZER.encode("q")[0], 9)
    constraint.rollback(0)
    constraint.advance(token_id)

    assert [token_id] == asked
