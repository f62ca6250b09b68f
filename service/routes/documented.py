"""Which problems a route can answer with, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from service.errors import MEDIA_TYPE

_MEANING = {
    400: "The body cannot be read",
    401: "A key is needed, or the one given is not known",
    403: "The key does not have the scope for this",
    404: "No such model or document",
    405: "This path does not take that method",
    409: "In conflict with what is loaded or under way; nothing was changed",
    413: "The body is too large",
    415: "The body is not said to be JSON in UTF-8",
    422: "A field is missing, unknown, of the wrong type or beyond a cap",
    429: "This client asks more often than it may; Retry-After says when to come back",
    431: "The address or the headers are too long",
    500: "A defect; the log has the details under the request id",
    503: "Too busy, or no model is loaded; Retry-After says when to come back",
    507: "No room for it; nothing was changed. Retry-After says when to come back",
}

_RETRY_AFTER = {
    "Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 500}):
        found[status] = {"description": _MEANING[status], "content": content}
        if status in (429, 503, 507):
            found[status]["headers"] = _RETRY_AFTER
    return found
