"""Check the limits that an operator can set, before any work is done."""

from __future__ import annotations

from typing import Any

from fullrank.text.words import normalised_length, words
from fullrank_service.base.errors import Invalid
from fullrank_service.base.settings import Settings
from fullrank_service.http.strict import too_long

# (schema, property) → (JSON Schema keyword, setting). The OpenAPI document shows the same limits.
LIMITS = {
    ("SearchRequest", "query"): ("maxLength", "max_query_chars"),
    ("SearchRequest", "limit"): ("maximum", "max_limit"),
    ("SearchRequest", "offset"): ("maximum", "max_offset"),
    ("BatchRequest", "searches"): ("maxItems", "max_batch"),
    ("Page", "text"): ("maxLength", "max_page_chars"),
    ("KnownPage", "text"): ("maxLength", "max_page_chars"),
    ("SearchQuery", "q"): ("maxLength", "max_query_chars"),
    ("SearchQuery", "limit"): ("maximum", "max_limit"),
    ("SearchQuery", "offset"): ("maximum", "max_offset"),
    ("SimilarQuery", "limit"): ("maximum", "max_limit"),
    ("SimilarQuery", "offset"): ("maximum", "max_offset"),
}

_BY_SCHEMA = {
    schema: [(name, *rule) for (of, name), rule in LIMITS.items() if of == schema]
    for schema, _ in LIMITS
}


def check_limits(settings: Settings, value: Any) -> None:
    """Check the limits of a request model. Raises Invalid, naming the fields that are above one."""
    errors = []
    for name, keyword, setting in _BY_SCHEMA[type(value).__name__]:
        given, limit = getattr(value, name), getattr(settings, setting)
        if keyword == "maximum" and given > limit:
            errors.append({"field": name, "reason": f"must be at most {limit}"})
        elif keyword == "maxItems" and len(given) > limit:
            errors.append({"field": name, "reason": f"must have at most {limit} items"})
        elif keyword == "maxLength":
            reason = too_long(given, limit)
            most = settings.max_words
            # A text has no more words than characters.
            if (
                reason is None
                and normalised_length(given, most) > most
                and len(words(given)) > most
            ):
                reason = f"must have at most {most} words"
            if reason is not None:
                errors.append({"field": name, "reason": reason})
    if errors:
        raise Invalid(errors=errors)
