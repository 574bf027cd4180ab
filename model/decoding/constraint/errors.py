"""Why a constraint cannot be used. Always: the message is fit to be sent back."""


class ConstraintError(ValueError):
    """A constraint that is wrong, too complex, or not to be met within the limit."""

    def __init__(
        self, problem: str, *, code: str, field: str, line: int | None = None, column: int | None = None
    ) -> None:
        """`field` is a path below `constraint`; line and column count from 1."""
        where = "" if line is None else f"line {line}, column {column}: " if column is not None else f"line {line}: "
        super().__init__(f"constraint.{field}: {where}{problem}")
        self.problem = problem
        self.code = code
        self.param = f"constraint.{field}"
        self.line = line
        self.column = column

    def at(self, field: str) -> "ConstraintError":
        """The same problem at another path."""
        return ConstraintError(self.problem, code=self.code, field=field, line=self.line, column=self.column)
