"""Every error that a response can carry, as problem documents (RFC 9457); fullrank_service.http.problems writes them.

One shape: {"type", "title", "status", "detail", "request_id", "errors"?}. docs/api.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from starlette.exceptions import HTTPException


class Problem(HTTPException):
    """Base of every error: the class gives the type, the detail describes this occurrence.

    Args:
        detail: the error and its remedy; None uses the default of the class.
        errors: the fields at fault, each {"field": path, "reason": text}.
    """

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    default_detail: ClassVar[str] = "The service failed; its log has the details."

    def __init__(
        self,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(self.status, detail or self.default_detail, headers)
        self.errors = errors


class Internal(Problem):
    pass


class BadRequest(Problem):
    status = 400
    slug = "bad-request"
    title = "Bad request"
    default_detail = "The request cannot be read."


class Unauthorized(Problem):
    status = 401
    slug = "unauthorized"
    title = "API key needed"
    default_detail = "Send an API key as `Authorization: Bearer <key>`."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    status = 403
    slug = "forbidden"
    title = "Not allowed with this key"
    default_detail = "The API key does not have the scope that this request needs."


class OtherOrigin(Forbidden):
    title = "Page of another origin"
    slug = "other-origin"
    default_detail = "Name the origin of the page in FULLRANK_CORS_ORIGINS."


class NotFound(Problem):
    status = 404
    slug = "not-found"
    title = "Not found"
    default_detail = "There is nothing at this path."


class ModelNotFound(NotFound):
    slug = "model-not-found"
    title = "No such model"


class DocumentNotFound(NotFound):
    slug = "document-not-found"
    title = "No such document"


class ExperimentNotFound(NotFound):
    slug = "experiment-not-found"
    title = "No experiment"
    default_detail = "No experiment is running."


class RuleNotFound(NotFound):
    slug = "rule-not-found"
    title = "No such rule"


class CursorExpired(Problem):
    status = 410
    slug = "cursor-expired"
    title = "Cursor expired"
    default_detail = 'The model of this cursor is not loaded any more; begin again with "*".'


class MethodNotAllowed(Problem):
    status = 405
    slug = "method-not-allowed"
    title = "Method not allowed"
    default_detail = "This path does not support the method; the Allow header lists those it does."


class RequestTimeout(Problem):
    status = 408
    slug = "request-timeout"
    title = "Request timeout"
    default_detail = "The request body did not arrive in time."


class Conflict(Problem):
    status = 409
    slug = "swap-in-progress"
    title = "Another swap is in progress"
    default_detail = "Another swap is in progress; nothing was changed."


class BundleRefused(Conflict):
    slug = "bundle-refused"
    title = "Bundle refused"


class DocumentNotAccepted(Conflict):
    slug = "document-not-accepted"
    title = "Document not accepted"


class TooManyRules(Conflict):
    slug = "too-many-rules"
    title = "Too many rules"


class TooFewClicks(Conflict):
    slug = "too-few-clicks"
    title = "Too few clicks"


class TooLarge(Problem):
    status = 413
    slug = "too-large"
    title = "Request too large"


class Misdirected(Problem):
    status = 421
    slug = "misdirected"
    title = "Unknown host"
    default_detail = "Name the host of the request in FULLRANK_ALLOWED_HOSTS."


class UnsupportedMedia(Problem):
    status = 415
    slug = "unsupported-media-type"
    title = "Unsupported media type"
    default_detail = "Send the body as JSON in UTF-8 with `Content-Type: application/json`."


class Invalid(Problem):
    status = 422
    slug = "invalid"
    title = "Invalid request"
    default_detail = "Fields of the request are missing, unknown or not as documented."


class PageUnknown(Invalid):
    slug = "page-unknown"
    title = "Page unknown"
    default_detail = "The text of this page is unknown, and pages are never fetched: send its text."


class IdempotencyKeyReused(Invalid):
    slug = "idempotency-key-reused"
    title = "Idempotency key reused"
    default_detail = (
        "This Idempotency-Key belongs to another request; nothing was changed. Send a new key."
    )


class RetryLater(Problem):
    """Base of the errors that may not occur again after `retry_after` seconds."""

    def __init__(self, detail: str | None = None, *, retry_after: int = 1) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


class TooManyRequests(RetryLater):
    status = 429
    slug = "too-many-requests"
    title = "Too many requests"
    default_detail = "This client exceeds its request rate."


class Overloaded(RetryLater):
    status = 503
    slug = "overloaded"
    title = "Overloaded"
    default_detail = "Too many requests are waiting; try again shortly."


class NotReady(Overloaded):
    slug = "not-ready"
    title = "No model is loaded"


class NotYetVisible(Overloaded):
    slug = "not-yet-visible"
    title = "Not visible yet"


class LogUnavailable(Overloaded):
    slug = "log-unavailable"
    title = "Log unavailable"
    default_detail = "The log of live documents cannot be written now; nothing was changed."


class EventsUnavailable(Overloaded):
    slug = "events-unavailable"
    title = "Log of events unavailable"
    default_detail = "The log of events cannot be read or written now; nothing was stored."


class PagesUnavailable(Overloaded):
    slug = "pages-unavailable"
    title = "Pages unavailable"
    default_detail = "The texts of pages cannot be read or written now; nothing was changed."


class RulesUnavailable(Overloaded):
    slug = "rules-unavailable"
    title = "Rules unavailable"
    default_detail = "The file of rules cannot be read or written now; nothing was changed."


class DocumentsMissing(Overloaded):
    slug = "documents-missing"
    title = "Part of the documents cannot be searched"


class CoordinatorUnavailable(Overloaded):
    slug = "coordinator-unavailable"
    title = "Coordinator unavailable"
    default_detail = (
        "The coordinator of the fleet does not answer. The change is done or has changed nothing; "
        "GET /v1/models says which version serves."
    )


class StorageFull(RetryLater):
    status = 507
    slug = "storage-full"
    title = "Storage full"
    default_detail = "The disk is full; nothing was changed."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, retry_after=10)


class TooManyDocuments(StorageFull):
    slug = "too-many-documents"
    title = "Too many live documents"


class EventsFull(StorageFull):
    slug = "events-full"
    title = "Log of events full"
    default_detail = "The log of events is full; nothing was stored."
