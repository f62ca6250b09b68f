"""JSON responses, and errors as problem documents (RFC 9457): the only place that writes one."""

from __future__ import annotations

import os
import re
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from fullrank.errors import FilterError, QueryError
from fullrank_service.base.errors import (
    BadRequest,
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Problem,
    TooLarge,
)
from fullrank_service.http.strict import MAX_ERRORS

# Pages show text from documents, so no inline script or style is allowed, and nothing from elsewhere but pictures.
SAFETY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: http: https:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


_ID_BYTES = 16
_DRAWN_AT_ONCE = 256

_unused: list[str] = []
# A forked worker would give the ids that its parent has drawn.
os.register_at_fork(after_in_child=_unused.clear)


def new_id() -> str:
    """Return 32 hexadecimal digits that no other call in any process returns.

    `os.urandom` lets other threads run, and the event loop then waits for them: up to 5 ms beside a thread that ranks.
    So many ids are drawn at once. Threads may call this, because taking an id from a list is atomic.
    """
    while True:
        try:
            return _unused.pop()
        except IndexError:
            digits = os.urandom(_ID_BYTES * _DRAWN_AT_ONCE).hex()
            width = 2 * _ID_BYTES
            _unused.extend(digits[at : at + width] for at in range(0, len(digits), width))


class JsonResponse(Response):
    """A JSON response. Raises TypeError for values that JSON cannot hold, lone surrogates included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def too_large(field: str) -> FilterError:
    """Return the error of a request whose answer would be too large, given the field that asks for so much."""
    return FilterError(
        field,
        "the answer would be larger than FULLRANK_MAX_ANSWER_BYTES; ask for fewer hits, or name the `fields` to return",
    )


def bounded(content: Any, max_bytes: int, field: str) -> JsonResponse:
    """Write an answer. Raises FilterError, naming the field that asks for so much, if it is too large."""
    response = JsonResponse(content)
    if len(response.body) > max_bytes:
        raise too_large(field)
    return response


MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "fullrank.request_id"
"""Key of the request id in the ASGI scope."""

_TYPE = "urn:fullrank:problem:"
# Starlette and FastAPI raise these statuses themselves.
_BY_STATUS: dict[int, type[Problem]] = {
    kind.status: kind
    for kind in (BadRequest, NotFound, MethodNotAllowed, TooLarge, Invalid, Internal)
}
_MEANING = {
    400: "The body cannot be read",
    401: "No API key, or an unknown or expired one",
    403: "The API key does not have the scope that this request needs",
    404: "No such model or document",
    405: "This path does not support the method",
    408: "The body did not arrive in time",
    409: "In conflict with a loaded model or a change in progress; nothing was changed",
    410: "The model of the cursor is not loaded any more",
    413: "The body is too large",
    415: "The Content-Type is not JSON in UTF-8",
    422: "A field is missing, unknown, of the wrong type or beyond a limit",
    429: "This client exceeds its request rate; Retry-After says when to try again",
    431: "The address or the headers are too long",
    500: "A defect; the log has the details under the request id",
    503: "Overloaded, or no model is loaded; Retry-After says when to try again",
    507: "Storage is full; nothing was changed. Retry-After says when to try again",
}
_RETRY_AFTER = {
    "Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}
}


def problem_response(problem: Problem, request_id: str) -> JsonResponse:
    content: dict[str, Any] = {
        "type": _TYPE + problem.slug,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "request_id": request_id,
    }
    if problem.errors:
        content["errors"] = problem.errors
    return JsonResponse(content, problem.status, problem.headers, MEDIA_TYPE)


def problem_of(error: Exception, scope: Scope) -> Problem | None:
    """Translate an error of this service or of its frameworks; None for a defect."""
    problem = _translated(error)
    if isinstance(problem, MethodNotAllowed):
        problem.headers = {"Allow": _allowed(scope) or (problem.headers or {}).get("Allow", "")}
    return problem


def _translated(error: Exception) -> Problem | None:
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _BY_STATUS.get(error.status_code, Internal)(headers=error.headers)
    if isinstance(error, RequestValidationError):
        # The rejected values stay out: they may be large, secret or not encodable.
        return Invalid(
            errors=[
                {"field": ".".join(map(str, item["loc"])), "reason": str(item["msg"])}
                for item in error.errors()[:MAX_ERRORS]
            ]
        )
    if isinstance(error, FilterError):
        return Invalid(errors=[{"field": error.path, "reason": error.reason}])
    if isinstance(error, QueryError):
        return Invalid(str(error))
    return None


def documented_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of a route for the `responses` of the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 500}):
        found[status] = {"description": _MEANING[status], "content": content}
        if status in (429, 503, 507):
            found[status]["headers"] = _RETRY_AFTER
    return found


def _allowed(scope: Scope) -> str:
    """List the methods of a path. The framework itself would name those of its first route only."""
    paths = scope["app"].openapi()["paths"]
    matching = [
        path
        for path in paths
        if re.fullmatch(re.sub(r"\\{.*?\\}", ".+", re.escape(path)), scope["path"])
    ]
    # Several templates can match; the longest is the most specific.
    return ", ".join(sorted(map(str.upper, paths[max(matching, key=len)]))) if matching else ""
