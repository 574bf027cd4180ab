"""What llguidance says of a grammar, in words that are fit to be sent back.

Always: of the message only fixed phrases and positions are kept, and nothing of the grammar itself.
"""

import re

from model.decoding.constraint.errors import ConstraintError
from model.decoding.constraint.schema_rules import KEYWORDS
from model.decoding.constraint.spec import ConstraintSpec

MAX_REASON = 160
NO_BOUNDARIES = r"word boundaries such as \b are not supported"
TOO_LONG = "its shortest text is longer than any text may be"
TOO_COMPLEX = "it takes more work than a grammar may"

_POSITION = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_REGEX_REASON = re.compile(r"^error: (.*)$", re.MULTILINE)
_REGEX_CARET = re.compile(r"^    ( *)\^", re.MULTILINE)
_BOUNDARY = re.compile(r"lookarounds not supported")
_TOO_COMPLEX = re.compile(r"too (?:big|large|complex|many)|limit|fuel|TooComplex", re.IGNORECASE)
_NO_TEXT = re.compile(r"NoExtension|Unsatisfiable|no tokens", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`")


def compile_error(spec: ConstraintSpec, message: str) -> ConstraintError:
    """The error of a grammar that llguidance refuses, or that turns out to allow nothing."""
    if _NO_TEXT.search(message):
        return ConstraintError("there is no text that fits it", code="invalid_grammar", field=spec.kind)
    line = column = None
    position = _POSITION.match(message)
    if position and spec.kind == "grammar":
        line, column = int(position[1]), int(position[2])
    reason = message[position.end() :] if position else message
    if spec.kind == "regex" and (caret := _REGEX_CARET.search(message)) and len(caret[1]) < len(str(spec.source)):
        line, column = 1, len(caret[1]) + 1
    if _BOUNDARY.search(message):
        return ConstraintError(NO_BOUNDARIES, code="unsupported_value", field=spec.kind, line=line, column=column)
    if _TOO_COMPLEX.search(message):
        return ConstraintError(TOO_COMPLEX, code="grammar_too_complex", field=spec.kind, line=line, column=column)
    return ConstraintError(_reason(reason), code="invalid_grammar", field=spec.kind, line=line, column=column)


def _reason(message: str) -> str:
    if regex := _REGEX_REASON.search(message):
        return regex[1][:MAX_REASON]
    message = message.removeprefix("failed to compile JSON schema: ")
    if message.startswith("oneOf constraints"):
        return "a oneOf of which more than one branch may hold is not supported"
    first = _QUOTED.sub(lambda found: found[0] if found[0][1:-1] in KEYWORDS else "…", message.partition("\n")[0])
    return re.split(r"[:;.(\[]", first)[0].strip()[:MAX_REASON] or "it is not valid"
