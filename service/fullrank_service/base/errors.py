"""Every error that a response can carry, as problem documents (RFC 9457); fullrank_service.http.problems writes them.

    Problem
    ├── BadRequest            400  the body is not UTF-8 text, or the request is not plain HTTP/1.1
    ├── Unauthorized          401  no API key where one is needed, or an unknown or expired one
    ├── Forbidden             403  the key lacks the scope
    │   └── OtherOrigin            a page of another origin sent the request
    ├── NotFound              404  no such path
    │   ├── ModelNotFound          no such alias, version or bundle name
    │   ├── DocumentNotFound       no such document in the model
    │   ├── ExperimentNotFound     no experiment is running
    │   └── RuleNotFound           no such rule of the collection
    ├── MethodNotAllowed      405
    ├── RequestTimeout        408  the body did not arrive in time
    ├── Conflict              409  another swap is in progress
    │   ├── BundleRefused          the bundle failed verification; the active version is unchanged
    │   ├── DocumentNotAccepted    a loaded model cannot store the document
    │   ├── TooManyRules           the collection has as many rules as it may have
    │   └── TooFewClicks           too few clicks to rank ads by value
    ├── CursorExpired         410  the model that a cursor belongs to is not loaded any more
    ├── TooLarge              413
    ├── UnsupportedMedia      415  the Content-Type is not the one that the path accepts, in UTF-8
    ├── Misdirected           421  the host is not one of FULLRANK_ALLOWED_HOSTS
    ├── Invalid               422  the body is not JSON; a field is missing, unknown, of the wrong type or too long
    │   ├── PageUnknown            a page is named by its URL, and its text is unknown
    │   └── IdempotencyKeyReused   the idempotency key belongs to another request
    ├── TooManyRequests       429  this client exceeds its rate
    ├── Internal              500  a defect; the details are in the log, not in the response
    ├── Overloaded            503  try again later
    │   ├── NotReady               no model is loaded
    │   ├── NotYetVisible          a write is not visible yet
    │   ├── LogUnavailable         the log of live documents cannot be written
    │   ├── EventsUnavailable      the log of events cannot be read or written
    │   ├── PagesUnavailable       the file of pages cannot be read or written
    │   ├── RulesUnavailable       the file of rules cannot be read or written
    │   ├── DocumentsMissing       some shards of a fleet do not answer
    │   └── CoordinatorUnavailable  the coordinator of a fleet does not answer
    └── StorageFull           507  the disk is full
        ├── TooManyDocuments       the limit of live documents is reached
        └── EventsFull             the disk or the limit of the log of events is full

One shape: {"type", "title", "status", "detail", "request_id", "errors"?}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from starlette.exceptions import HTTPException


class Problem(HTTPException):
    """Base of every error: the class gives the type, the detail describes this occurrence.

    Args:
        detail: the error and its remedy; None uses the default of the class.
        headers: headers of the response.
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
