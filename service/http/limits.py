"""Check the limits that an operator can set, before any work is done."""

from __future__ import annotations

from typing import Any

from fullrank.text.words import words
from service.errors import Invalid
from service.settings import Settings

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


def check_limits(settings: Settings, value: Any, prefix: str = "") -> None:
    """Check the limits of a request model.

    Args:
        prefix: put before the names of fields in errors.

    Raises:
        Invalid: names the fields that are above a limit.
    """
    errors = []
    for name, keyword, setting in _BY_SCHEMA[type(value).__name__]:
        given, limit = getattr(value, name), getattr(settings, setting)
        if keyword == "maximum" and given > limit:
            errors.append({"field": prefix + name, "reason": f"must be at most {limit}"})
        elif keyword == "maxItems" and len(given) > limit:
            errors.append({"field": prefix + name, "reason": f"must have at most {limit} items"})
        elif keyword == "maxLength" and len(given) > limit:
            errors.append(
                {"field": prefix + name, "reason": f"must have at most {limit} characters"}
            )
        elif (
            keyword == "maxLength"
            and len(given) > settings.max_words  # a text has no more words than characters
            and len(words(given)) > settings.max_words
        ):
            errors.append(
                {"field": prefix + name, "reason": f"must have at most {settings.max_words} words"}
            )
    if errors:
        raise Invalid(errors=errors)
