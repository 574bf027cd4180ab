"""What the OpenAPI document says beyond what the framework reads off the routes: who may call, and every error.

Knows the document as a value, paths and statuses; knows no web framework. Always: every operation but the open ones
asks for the bearer scheme, and every status that an operation may have is declared with its headers and the envelope.
"""

from collections.abc import Set
from typing import Any

from service.errors import (
    RETRIED,
    BadJson,
    BodyTooLarge,
    GenerationFailed,
    HostRefused,
    InvalidField,
    NotFound,
    Overloaded,
    RateLimited,
    RequestTimeout,
    ServiceError,
    SessionBusy,
    Unauthorized,
    UnsupportedMedia,
)

SCHEME = "bearer"
TOO_LATE, _ = GenerationFailed.STATUS["deadline_exceeded"]
QUEUED = frozenset({"/generate", "/logits", "/replay", "/v1/completions", "/v1/chat/completions"})
"""Paths whose requests wait and generate."""
HOLDING_SESSIONS = frozenset({"/generate", "/v1/completions", "/v1/chat/completions", "/sessions/{session_id}/fork"})
DELETED = "/sessions/{session_id}"
MEANINGS = {
    BadJson.status: "The body is not the JSON, or the request not the HTTP, that it claims to be; on `/v1` also a bad "
    "value.",
    Unauthorized.status: "No key, or one that is not known. A server without keys never answers so.",
    NotFound.status: "There is no such session or model.",
    RequestTimeout.status: "The body did not arrive in time; the connection ends.",
    SessionBusy.status: "The session is generating, or the name is taken.",
    BodyTooLarge.status: "The body is larger than the server takes.",
    UnsupportedMedia.status: "The body is not sent as JSON.",
    HostRefused.status: "The header `Host` names the server as it is not to be called.",
    InvalidField.status: "A value that the caller can mend, named with what is allowed.",
    RateLimited.status: "The key has used up what it may. Try again later.",
    ServiceError.status: "The server failed. This is a bug.",
    Overloaded.status: "The server is full, stopping or not ready. Try again later.",
    TOO_LATE: "The deadline passed before the first token.",
}
FRAMEWORK_SCHEMAS = ("HTTPValidationError", "ValidationError")
"""What the framework declares and no answer of ours has."""

HEADERS: dict[str, Any] = {
    "x-request-id": {
        "description": "The name of this request, as it stands in errors and in the server's log.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    },
    "retry-after": {
        "description": "Seconds after which to try again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "www-authenticate": {
        "description": "How to be let in (RFC 6750).",
        "required": True,
        "schema": {"type": "string"},
    },
}
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "code", "message", "param", "allowed", "request_id"],
            "additionalProperties": False,
            "properties": {
                "type": {"type": "string", "description": "The group of the code."},
                "code": {"type": "string", "description": "What is wrong, for programs."},
                "message": {"type": "string", "description": "The same for people; it never repeats the value."},
                "param": {"type": ["string", "null"], "description": "The field that it is about."},
                "allowed": {"description": "What may stand there instead."},
                "request_id": {"type": "string", "description": "As in the header."},
            },
        }
    },
}
SECURITY_SCHEME: dict[str, Any] = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of the server's file of keys, as `Authorization: Bearer KEY`. A server that was started "
    "without keys asks for none and ignores what is sent.",
}


def completed(document: dict[str, Any], open_paths: Set[str], health_paths: Set[str]) -> dict[str, Any]:
    """The framework's document with the scheme, the errors and the headers.

    `open_paths` ask for no key; `health_paths`, which are among them, are answered under any name.
    """
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in FRAMEWORK_SCHEMAS:
        schemas.pop(name, None)
    schemas["Error"] = ERROR_SCHEMA
    components["headers"] = HEADERS
    components["securitySchemes"] = {SCHEME: SECURITY_SCHEME}
    components["responses"] = {str(status): _response(status) for status in MEANINGS}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            is_open = path in open_paths
            errors = _errors(path, method, has_body="requestBody" in operation, is_open=is_open)
            if path not in health_paths:
                errors.add(HostRefused.status)
            _complete(operation, errors, is_open=is_open)
    return document


def _complete(operation: dict[str, Any], errors: Set[int], *, is_open: bool) -> None:
    operation["security"] = [] if is_open else [{SCHEME: []}]
    responses = operation["responses"]
    responses.pop(str(InvalidField.status), None)  # the framework's form of it
    for declared in responses.values():
        declared.setdefault("headers", {})["x-request-id"] = _reference("headers", "x-request-id")
    for status in sorted(errors):
        responses[str(status)] = _reference("responses", str(status))


def _errors(path: str, method: str, *, has_body: bool, is_open: bool) -> set[int]:
    """Every status but success that the operation may be answered with."""
    errors = {BadJson.status, ServiceError.status, Overloaded.status}
    if not is_open:
        errors.add(Unauthorized.status)
    if has_body:
        errors |= {RequestTimeout.status, BodyTooLarge.status, UnsupportedMedia.status}
    if has_body or path.startswith("/sessions"):
        errors |= {NotFound.status, InvalidField.status}
    if path.startswith("/v1/models/"):
        errors.add(NotFound.status)
    if path in QUEUED:
        errors |= {RateLimited.status, TOO_LATE}
    if path in HOLDING_SESSIONS or (path, method) == (DELETED, "delete"):
        errors.add(SessionBusy.status)
    return errors


def _response(status: int) -> dict[str, Any]:
    names = ["x-request-id"]
    if status == Unauthorized.status:
        names.append("www-authenticate")
    if status in RETRIED:
        names.append("retry-after")
    return {
        "description": MEANINGS[status],
        "headers": {name: _reference("headers", name) for name in names},
        "content": {"application/json": {"schema": _reference("schemas", "Error")}},
    }


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}
