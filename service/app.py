"""The ASGI application: the routes, and one form for every error on every route.

Knows how the parts of the door are put together; knows nothing of models or of the engine.
Always: an error leaves as the envelope of `service.errors`, whoever raised it.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from service import (
    __version__,
    estimate_routes,
    logits_routes,
    openai_routes,
    page_routes,
    replay_routes,
    routes,
    session_routes,
)
from service.context import Service
from service.cors import CrossOrigin
from service.errors import InvalidField, MethodNotAllowed, NotFound, RequestTimeout, ServiceError, envelope
from service.guard import HEALTH_PATHS, OPEN_PATHS, Guard
from service.hosts import main_hosts, metrics_hosts
from service.middleware import Door, request_id_of
from service.openapi_document import completed
from service.request_log import note_of
from service.routes import json_response

OPENAI_PREFIX = "/v1/"
ROUTERS = (
    routes.router,
    session_routes.router,
    replay_routes.router,
    estimate_routes.router,
    logits_routes.router,
    openai_routes.router,
    page_routes.router,
)
NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""The framework's own would tell exceptions and whole paths to whoever collects."""


class Application(FastAPI):
    """The framework's application with a document that is complete."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = completed(super().openapi(), OPEN_PATHS, HEALTH_PATHS)
        return self.openapi_schema


def create_app(service: Service) -> FastAPI:
    """An application that serves `service`; it starts and stops nothing."""
    app = Application(
        title="Tane",
        version=__version__,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    methods = _methods_by_path(route for router in ROUTERS for route in router.routes)
    app.state.methods = methods
    app.add_middleware(
        Guard,
        keys=service.keys,
        metrics_port=service.settings.metrics_port,
        hosts=main_hosts(service.settings, has_keys=service.keys is not None),
        metrics_hosts=metrics_hosts(service.settings),
    )
    app.add_middleware(
        Door,
        metrics=service.metrics,
        routes=frozenset(methods),
        tracer=service.tracer,
        is_leaving=lambda: service.is_draining,
    )
    if service.settings.cors_origin:
        app.add_middleware(CrossOrigin, origins=service.settings.cors_origin)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    return app


def error_response(request: Request, error: ServiceError) -> Response:
    """The error as an answer to this request. Bad values are 400 where OpenAI's clients look for it."""
    status = error.status
    note_of(request.scope).error_code = error.code
    if isinstance(error, InvalidField) and request.url.path.startswith(OPENAI_PREFIX):
        status = 400
    response = json_response(envelope(error, request_id_of(request.scope)), status)
    if error.retry_after_s is not None:
        response.headers["retry-after"] = str(error.retry_after_s)
    if isinstance(error, RequestTimeout):
        response.headers["connection"] = "close"
    return response


def _methods_by_path(all_routes: Iterable[Any]) -> Mapping[str, tuple[str, ...]]:
    methods: dict[str, set[str]] = {}
    for route in all_routes:
        if isinstance(route, APIRoute):
            methods.setdefault(route.path, set()).update(route.methods or ())
    return {path: tuple(sorted(names)) for path, names in methods.items()}


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return error_response(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(request, NotFound("there is no such route"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        path = getattr(request.scope.get("route"), "path", "")
        allowed = request.app.state.methods.get(path, ())
        response = error_response(request, MethodNotAllowed("this route does not take that method", allowed=allowed))
        response.headers["allow"] = ", ".join(allowed)
        return response
    other = ServiceError("the request was refused", code="http_error")
    other.status, other.type = error.status_code, "invalid_request_error"
    return error_response(request, other)


async def _validation_error(request: Request, error: Exception) -> Response:
    """What the framework itself finds wrong; bodies are read by hand and never come here."""
    return error_response(request, InvalidField("the request is not valid"))
