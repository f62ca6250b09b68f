"""Every error that a response can carry, as problem documents (RFC 9457), which docs/reference/http.md lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from starlette.exceptions import HTTPException


class Problem(HTTPException):
    """Base of every error: the class gives the type, the detail describes this occurrence.

    The slug is the name of the class unless it has another one.

    Args:
        detail: the error and its remedy; None uses the default of the class.
        errors: the fields at fault, each {"field": path, "reason": text}.
    """

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    default_detail: ClassVar[str] = "The service failed; its log has the details."

    def __init_subclass__(cls) -> None:
        if "slug" not in vars(cls):
            cls.slug = re.sub("(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

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
    title = "Bad request"
    default_detail = "The request cannot be read."


class Unauthorized(Problem):
    status = 401
    title = "API key needed"
    default_detail = "Send an API key as `Authorization: Bearer <key>`."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    status = 403
    title = "Not allowed with this key"
    default_detail = "The API key does not have the scope that this request needs."


class OtherOrigin(Forbidden):
    title = "Page of another origin"
    default_detail = "Name the origin of the page in FULLRANK_CORS_ORIGINS."


class NotFound(Problem):
    status = 404
    title = "Not found"
    default_detail = "There is nothing at this path."


class ModelNotFound(NotFound):
    title = "No such model"


class DocumentNotFound(NotFound):
    title = "No such document"


class ExperimentNotFound(NotFound):
    title = "No experiment"
    default_detail = "No experiment is running."


class RuleNotFound(NotFound):
    title = "No such rule"


class CursorExpired(Problem):
    status = 410
    title = "Cursor expired"
    default_detail = 'The model of this cursor is not loaded any more; begin again with "*".'


class MethodNotAllowed(Problem):
    status = 405
    title = "Method not allowed"
    default_detail = "This path does not support the method; the Allow header lists those it does."


class RequestTimeout(Problem):
    status = 408
    title = "Request timeout"
    default_detail = "The request body did not arrive in time."


class Conflict(Problem):
    status = 409
    slug = "swap-in-progress"
    title = "Another swap is in progress"
    default_detail = "Another swap is in progress; nothing was changed."


class BundleRefused(Conflict):
    title = "Bundle refused"


class DocumentNotAccepted(Conflict):
    title = "Document not accepted"


class TooManyRules(Conflict):
    title = "Too many rules"


class TooFewClicks(Conflict):
    title = "Too few clicks"


class TooLarge(Problem):
    status = 413
    title = "Request too large"


class Misdirected(Problem):
    status = 421
    title = "Unknown host"
    default_detail = "Name the host of the request in FULLRANK_ALLOWED_HOSTS."


class UnsupportedMedia(Problem):
    status = 415
    slug = "unsupported-media-type"
    title = "Unsupported media type"
    default_detail = "Send the body as JSON in UTF-8 with `Content-Type: application/json`."


class Invalid(Problem):
    status = 422
    title = "Invalid request"
    default_detail = "Fields of the request are missing, unknown or not as documented."


class PageUnknown(Invalid):
    title = "Page unknown"
    default_detail = "The text of this page is unknown, and pages are never fetched: send its text."


class IdempotencyKeyReused(Invalid):
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
    title = "Too many requests"
    default_detail = "This client exceeds its request rate."


class Overloaded(RetryLater):
    status = 503
    title = "Overloaded"
    default_detail = "Too many requests are waiting; try again shortly."


class NotReady(Overloaded):
    title = "No model is loaded"


class NotYetVisible(Overloaded):
    title = "Not visible yet"


class LogUnavailable(Overloaded):
    title = "Log unavailable"
    default_detail = "The log of live documents cannot be written now; nothing was changed."


class EventsUnavailable(Overloaded):
    title = "Log of events unavailable"
    default_detail = "The log of events cannot be read or written now; nothing was stored."


class PagesUnavailable(Overloaded):
    title = "Pages unavailable"
    default_detail = "The texts of pages cannot be read or written now; nothing was changed."


class RulesUnavailable(Overloaded):
    title = "Rules unavailable"
    default_detail = "The file of rules cannot be read or written now; nothing was changed."


class DocumentsMissing(Overloaded):
    title = "Part of the documents cannot be searched"


class CoordinatorUnavailable(Overloaded):
    title = "Coordinator unavailable"
    default_detail = (
        "The coordinator of the fleet does not answer. The change is done or has changed nothing; "
        "GET /v1/models says which version serves."
    )


class StorageFull(RetryLater):
    status = 507
    title = "Storage full"
    default_detail = "The disk is full; nothing was changed."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, retry_after=10)


class TooManyDocuments(StorageFull):
    title = "Too many live documents"


class EventsFull(StorageFull):
    title = "Log of events full"
    default_detail = "The log of events is full; nothing was stored."
