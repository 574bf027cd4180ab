"""A check of our own for schemathesis: what fits its schema is refused for what it means, never for its form."""

import json
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode, Response

REFUSED = (400, 422)
OF_FORM = frozenset(
    {
        "invalid_json",
        "invalid_utf8",
        "invalid_http",
        "invalid_type",
        "invalid_role",
        "invalid_session_id",
        "unknown_field",
        "not_finite",
        "duplicate_key",
        "http_error",
    }
)
"""Codes of errors that a schema can rule out. The others say what no schema can: what the model and its context
allow, and how fields go together."""


@schemathesis.check
def refused_for_its_meaning(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    meta = case.meta
    if meta is None or meta.generation.mode is not GenerationMode.POSITIVE or response.status_code not in REFUSED:
        return
    code = json.loads(response.content)["error"]["code"]
    if code in OF_FORM:
        raise AssertionError(f"a body that fits its schema is refused as {code}")
