"""Every error a caller can meet, each with its status and code.

ServiceError
├── BadJson            400  the body is not the JSON it claims to be
├── Unauthorized       401  no key, or one that is not known
├── OriginRefused      403  a browser's page of another origin may not call
├── NotFound           404  no such route, model or session
├── MethodNotAllowed   405
├── RequestTimeout     408  the body did not arrive in time; the connection ends
├── SessionBusy        409  the session is already generating
├── SessionExists      409  the name is taken
├── BodyTooLarge       413
├── UnsupportedMedia   415
├── HostRefused        421  the server is not to be called by that name
├── InvalidField       422  a value the caller can mend (400 on /v1)
├── RateLimited        429  the key has used up what it may; try again later
├── Overloaded         503  the queue is full; try again later
├── Draining           503  the server is stopping; another may serve
└── GenerationFailed   504 deadline, 503 engine stopping, 500 engine fault

Knows no web framework. Always: a message names the field, the problem and what is allowed, never the value.
"""

from typing import Any, ClassVar

from service.retrying import retry_after

OUR_FAULT = "the server failed; this is a bug"
RETRIED = frozenset({429, 503})
"""Statuses that say when to come back."""


class ServiceError(Exception):
    """An answer other than success. `type` groups codes for clients that branch on it.

    Where callers may come back it says when: after `retry_after_s`, drawn unless it is given.
    """

    status = 500
    type = "internal_error"
    code = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        allowed: Any = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.param = param
        self.allowed = allowed
        self.retry_after_s = retry_after() if retry_after_s is None and self.status in RETRIED else retry_after_s


class BadJson(ServiceError):
    status, type, code = 400, "invalid_request_error", "invalid_json"


class Unauthorized(ServiceError):
    status, type, code = 401, "authentication_error", "invalid_api_key"


class OriginRefused(ServiceError):
    status, type, code = 403, "permission_error", "origin_refused"


class NotFound(ServiceError):
    status, type, code = 404, "not_found_error", "not_found"


class MethodNotAllowed(ServiceError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class RequestTimeout(ServiceError):
    status, type, code = 408, "timeout_error", "request_timeout"


class SessionBusy(ServiceError):
    status, type, code = 409, "conflict_error", "session_busy"


class SessionExists(ServiceError):
    status, type, code = 409, "conflict_error", "session_exists"


class BodyTooLarge(ServiceError):
    status, type, code = 413, "invalid_request_error", "body_too_large"


class UnsupportedMedia(ServiceError):
    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class HostRefused(ServiceError):
    status, type, code = 421, "permission_error", "host_refused"


class InvalidField(ServiceError):
    status, type, code = 422, "invalid_request_error", "invalid_value"


class RateLimited(ServiceError):
    status, type, code = 429, "rate_limit_error", "rate_limited"


class Overloaded(ServiceError):
    status, type, code = 503, "overloaded_error", "overloaded"


class Draining(ServiceError):
    status, type, code = 503, "overloaded_error", "draining"


class GenerationFailed(ServiceError):
    """A request that was accepted and then failed; the code says why."""

    STATUS: ClassVar = {
        "deadline_exceeded": (504, "timeout_error"),
        "engine_stopped": (503, "overloaded_error"),
        "cancelled": (499, "cancelled_error"),
        "constraint_failed": (422, "invalid_request_error"),
        "resume_mismatch": (422, "invalid_request_error"),
    }

    def __init__(self, message: str, *, code: str) -> None:
        self.status, self.type = self.STATUS.get(code, (500, "internal_error"))
        super().__init__(message, code=code)


def envelope(error: ServiceError, request_id: str) -> dict[str, Any]:
    """The one form in which a caller sees an error, as a body or inside a stream."""
    return {
        "error": {
            "type": error.type,
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "allowed": error.allowed,
            "request_id": request_id,
        }
    }
