"""A constraint that was fitted to a limit before it begins."""

import pytest

from model.decoding.constraint import ConstraintCompiler, ConstraintError, ConstraintSpec
from model.tokenizer import Tokenizer
from tests.constrained import random_ids
from tests.tiny_vocabulary import tiny_vocabulary

COMPILER = ConstraintCompiler(Tokenizer(tiny_vocabulary()))


def test_a_fitted_constraint_begins_as_it_would_have() -> None:
    schema = {"anyOf": [{"type": "string", "minLength": 20}, {"const": None}]}
    constraint = COMPILER.compile(ConstraintSpec.json_schema(schema))

    assert random_ids(constraint, 5, 2) == random_ids(constraint.fitted(5), 5, 2)


def test_a_constraint_fitted_to_too_little_is_refused() -> None:
    with pytest.raises(ConstraintError, match="at most 0 tokens"):
        COMPILER.compile(ConstraintSpec.choice(("hello", "123"))).fitted(0)
