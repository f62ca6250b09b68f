"""Write the OpenAPI document, with the limits of the settings; docs/openapi.json has that of the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from fullrank.bundle.manifest import NAME
from fullrank.text.words import normalised_length, words
from fullrank_service.base.errors import Invalid
from fullrank_service.base.settings import Settings
from fullrank_service.http.guard import SCHEME
from fullrank_service.http.keys import SCOPES
from fullrank_service.http.middleware import OF_COLLECTIONS, has_collections
from fullrank_service.http.problems import documented_problems
from fullrank_service.http.schemas import FIELD_VALUE, ProblemDocument
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


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Write the document of an app, once."""
    if app.openapi_schema:
        return app.openapi_schema
    written = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = written["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    schemas["FieldValue"] = FIELD_VALUE
    schemas |= schemas["ProblemDocument"].pop("$defs", {})
    for (schema, name), (keyword, setting) in LIMITS.items():
        if schema in schemas:
            schemas[schema]["properties"][name][keyword] = getattr(settings, setting)
    written["components"]["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key of `fullrank keys create`, with some of the scopes "
            + ", ".join(SCOPES),
        }
    }
    for operations in written["paths"].values():
        for operation in operations.values():
            _complete(operation, settings)
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                # Generated clients call their functions by this name.
                written["paths"][route.path_format][method.lower()]["operationId"] = route.name
    written["paths"] |= _of_collections(written["paths"])
    app.openapi_schema = written
    return written


_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "bundle name of the collection",
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
}


def _of_collections(paths: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the paths of a collection: those that search the default one, with its name as a parameter."""
    return {
        path.replace("/v1/", f"{OF_COLLECTIONS}{{name}}/", 1): {
            method: {
                **operation,
                "operationId": f"{operation['operationId']}_in_collection",
                "parameters": [_NAME, *operation.get("parameters", ())],
                "responses": {"404": documented_problems(404)[404]} | operation["responses"],
            }
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
        if has_collections(path)
    }


def _complete(operation: dict[str, Any], settings: Settings) -> None:
    statuses = [408] if "requestBody" in operation else []
    if "security" in operation:
        [[scope]] = operation["security"][0].values()
        statuses += (401, 403) if scope == "admin" else (401, 403, 429)
    operation["responses"] |= {
        str(status): documented_problems(status)[status] for status in statuses
    }
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
        name = parameter["name"]
        limit = LIMITS.get(("SearchQuery", name), LIMITS.get(("SimilarQuery", name)))
        is_limited = limit is not None and limit[0] in parameter["schema"]
        if parameter["in"] == "query" and limit is not None and not is_limited:
            parameter["schema"][limit[0]] = getattr(settings, limit[1])


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop null from the type of an optional parameter: a query string or header cannot hold it."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if not options:
        return schema
    return {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
