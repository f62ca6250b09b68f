"""Every error an answer can carry, as problem documents (RFC 9457).

    Problem
    ├── BadRequest      400   the body is no UTF-8 text, or what came is not HTTP
    ├── Unauthorized    401   no key where one is needed, or one that is not known
    ├── Forbidden       403   the key lacks the scope
    ├── NotFound        404   no such path
    │   ├── ModelNotFound     no such alias, version or bundle name
    │   └── DocumentNotFound  no such document in the model
    ├── MethodNotAllowed 405
    ├── TimedOut        408   the request did not arrive in time
    ├── Conflict        409   another swap is under way
    │   ├── BundleRefused     the bundle did not verify; what served goes on serving
    │   └── NotTaken          a loaded model does not take the document
    ├── TooLarge        413
    ├── UnsupportedMedia 415  the body is not said to be what the path takes, in UTF-8
    ├── Invalid         422   the body is not JSON; a field is missing, unknown, of the wrong type or too long
    │   └── KeyReused         the idempotency key belongs to another request
    ├── TooMany         429   this client, for now
    ├── HeadTooLarge    431
    ├── Internal        500   a defect; the log has the details, the answer has not
    ├── Overloaded      503   try again later
    │   ├── NotReady          no model is loaded
    │   ├── Behind            what was written is not visible yet
    │   └── LogUnavailable    the log of live documents cannot be written
    └── StorageFull     507   no room on the disk
        └── TooManyDocuments  as many live documents as there may be

One shape: {"type", "title", "status", "detail", "request_id", "errors"?}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from logging import getLogger
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fullrank.errors import FilterError, QueryError
from service.http.responses import Answer

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:fullrank:problem:"
_log = getLogger(__name__)


class Problem(HTTPException):
    """Base of every error; the class says what kind, the detail what happened this time."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    detail_default: ClassVar[str] = "Something went wrong on our side; the log has the details."

    def __init__(
        self,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(self.status, detail or self.detail_default, headers)
        self.errors = errors

    def answer(self, request_id: str) -> Answer:
        """The problem document."""
        content: dict[str, Any] = {
            "type": _TYPE + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        if self.errors:
            content["errors"] = self.errors
        return Answer(content, status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE)


class Internal(Problem):
    pass


class BadRequest(Problem):
    status = 400
    slug = "bad-request"
    title = "Bad request"
    detail_default = "The request cannot be read."


class Unauthorized(Problem):
    status = 401
    slug = "unauthorized"
    title = "Key needed"
    detail_default = "Send a key as `Authorization: Bearer <key>`."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    status = 403
    slug = "forbidden"
    title = "Not with this key"
    detail_default = "The key does not have the scope for this."


class NotFound(Problem):
    status = 404
    slug = "not-found"
    title = "Not found"
    detail_default = "Nothing answers at this path."


class ModelNotFound(NotFound):
    slug = "model-not-found"
    title = "No such model"


class DocumentNotFound(NotFound):
    slug = "document-not-found"
    title = "No such document"


class MethodNotAllowed(Problem):
    status = 405
    slug = "method-not-allowed"
    title = "Method not allowed"
    detail_default = "This path does not take that method."


class TimedOut(Problem):
    status = 408
    slug = "timed-out"
    title = "Request too slow"
    detail_default = "The request did not arrive in time."


class HeadTooLarge(Problem):
    status = 431
    slug = "head-too-large"
    title = "Head too large"
    detail_default = "The head of the request is too large."


class Conflict(Problem):
    status = 409
    slug = "swap-under-way"
    title = "Another swap is under way"
    detail_default = "Another swap is under way; nothing was changed."


class BundleRefused(Conflict):
    slug = "bundle-refused"
    title = "The bundle was refused"


class NotTaken(Conflict):
    slug = "documents-not-taken"
    title = "The document is not taken"


class TooLarge(Problem):
    status = 413
    slug = "too-large"
    title = "Request too large"


class UnsupportedMedia(Problem):
    status = 415
    slug = "unsupported-media-type"
    title = "Unsupported media type"
    detail_default = "The body must be JSON in UTF-8, sent as Content-Type: application/json."


class Invalid(Problem):
    status = 422
    slug = "invalid"
    title = "Invalid request"
    detail_default = "The request has fields that are missing, unknown or not as documented."


class KeyReused(Invalid):
    slug = "key-reused"
    title = "Idempotency key of another request"
    detail_default = "This Idempotency-Key was given to another request; nothing was changed."


class Later(Problem):
    """Base of what may be tried again after a while."""

    def __init__(self, detail: str | None = None, *, retry_after: int = 1) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class TooMany(Later):
    status = 429
    slug = "too-many-requests"
    title = "Too many requests"
    detail_default = "This client asks more often than it may."


class Overloaded(Later):
    status = 503
    slug = "overloaded"
    title = "Too busy"
    detail_default = "Too many requests are waiting; try again shortly."


class NotReady(Overloaded):
    slug = "not-ready"
    title = "No model is loaded"


class Behind(Overloaded):
    slug = "behind"
    title = "Not visible yet"


class LogUnavailable(Overloaded):
    slug = "log-unavailable"
    title = "The log cannot be written"
    detail_default = "Live documents cannot be written now; nothing was changed."


class StorageFull(Later):
    status = 507
    slug = "storage-full"
    title = "No room"
    detail_default = "The disk is full; nothing was changed."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, retry_after=10)


class TooManyDocuments(StorageFull):
    slug = "too-many-documents"
    title = "Too many live documents"


_BY_STATUS: dict[int, type[Problem]] = {
    kind.status: kind
    for kind in (BadRequest, NotFound, MethodNotAllowed, TooLarge, Invalid, Internal)
}


def request_id(request: Request) -> str:
    """The id that the middleware gave this request."""
    return str(request.scope.get("fullrank.request_id", ""))


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error is to the caller; None where it is a defect."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        # What Starlette and FastAPI raise themselves: 404, 405, 400.
        return _BY_STATUS.get(error.status_code, Internal)(headers=error.headers)
    if isinstance(error, RequestValidationError):
        # Where and why, never the value itself: it may be large, or secret, or not encodable.
        return Invalid(
            errors=[
                {"field": ".".join(map(str, item["loc"])), "reason": str(item["msg"])}
                for item in error.errors()[:20]
            ]
        )
    if isinstance(error, FilterError):
        return Invalid(errors=[{"field": error.path, "reason": error.reason}])
    if isinstance(error, QueryError):
        return Invalid(str(error))
    return None


async def _answer(request: Request, error: Exception) -> Answer:
    problem = problem_of(error)
    assert problem is not None
    if isinstance(problem, MethodNotAllowed):
        problem.headers = {"Allow": _allowed(request) or (problem.headers or {}).get("Allow", "")}
    return problem.answer(request_id(request))


def _allowed(request: Request) -> str:
    """The methods that the document has for a path: the framework names those of the first route alone."""
    paths = request.app.openapi()["paths"]
    meant = [
        path
        for path in paths
        if re.fullmatch(re.sub(r"\\{.*?\\}", ".+", re.escape(path)), request.scope["path"])
    ]
    # Of several the one that says most about the path.
    return ", ".join(sorted(map(str.upper, paths[max(meant, key=len)]))) if meant else ""


def install(app: FastAPI) -> None:
    """Turn every error of this tree, and of the frameworks, into the one shape."""
    for kind in (Problem, HTTPException, RequestValidationError, QueryError):
        app.add_exception_handler(kind, _answer)
