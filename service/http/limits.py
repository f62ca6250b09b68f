"""The caps that an operator can set, checked before any work is done."""

from __future__ import annotations

from typing import Any

from fullrank.text.words import words
from service.errors import Invalid
from service.settings import Settings

# (schema, property) → (JSON Schema keyword, setting); also what the OpenAPI document is given.
CAPS = {
    ("SearchRequest", "query"): ("maxLength", "max_query_chars"),
    ("SearchRequest", "limit"): ("maximum", "max_limit"),
    ("SearchRequest", "offset"): ("maximum", "max_offset"),
    ("BatchRequest", "searches"): ("maxItems", "max_batch"),
    ("Page", "text"): ("maxLength", "max_page_chars"),
    ("SimilarQuery", "limit"): ("maximum", "max_limit"),
    ("SimilarQuery", "offset"): ("maximum", "max_offset"),
}


_BY_SCHEMA = {
    schema: [(name, *rule) for (of, name), rule in CAPS.items() if of == schema]
    for schema, _ in CAPS
}


def check(settings: Settings, value: Any, within: str = "") -> None:
    """Raises Invalid naming the fields of a request model that pass a cap; within: what stands before their names."""
    errors = []
    for name, keyword, setting in _BY_SCHEMA[type(value).__name__]:
        given, cap = getattr(value, name), getattr(settings, setting)
        if keyword == "maximum" and given > cap:
            errors.append({"field": within + name, "reason": f"must be at most {cap}"})
        elif keyword == "maxItems" and len(given) > cap:
            errors.append({"field": within + name, "reason": f"must have at most {cap} items"})
        elif keyword == "maxLength" and len(given) > cap:
            errors.append({"field": within + name, "reason": f"must have at most {cap} characters"})
        elif (
            keyword == "maxLength"
            and len(given) > settings.max_words  # no text has more words than letters
            and len(words(given)) > settings.max_words
        ):
            errors.append(
                {"field": within + name, "reason": f"must have at most {settings.max_words} words"}
            )
    if errors:
        raise Invalid(errors=errors)
