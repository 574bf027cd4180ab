"""Text that keeps a form: JSON schemas, regular expressions, choices and grammars, through llguidance.

`ConstraintCompiler` turns a `ConstraintSpec` into a `CompiledConstraint`, which many sequences may share; each begins a
`Constraint` of its own. Knows token ids and bytes; knows no logits, no HTTP and no threads.
Always: what a constrained sequence returns conforms and fits its limit, since at every token one completion that does
is known; and everything is a function of (spec, banned ids, limit, tokens so far).
"""

from model.decoding.constraint.compiler import CONSTRAINT_VERSION, CompiledConstraint, ConstraintCompiler
from model.decoding.constraint.errors import ConstraintError
from model.decoding.constraint.spec import ConstraintKind, ConstraintSpec
from model.decoding.constraint.state import Constraint

__all__ = [
    "CONSTRAINT_VERSION",
    "CompiledConstraint",
    "Constraint",
    "ConstraintCompiler",
    "ConstraintError",
    "ConstraintKind",
    "ConstraintSpec",
]
