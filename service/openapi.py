"""The OpenAPI document, with the caps of the settings written in.

`python -m service.openapi` prints the one for the defaults; docs/openapi.json holds it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.auth.keys import SCOPES
from service.edge.guard import SCHEME
from service.http.limits import CAPS
from service.http.schemas import FIELD_VALUE, ProblemDocument
from service.routes.documented import problems
from service.settings import Settings


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The document of an app, made once."""
    if app.openapi_schema:
        return app.openapi_schema
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = made["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    schemas["FieldValue"] = FIELD_VALUE
    schemas |= schemas["ProblemDocument"].pop("$defs", {})
    for (schema, name), (keyword, setting) in CAPS.items():
        if schema in schemas:
            schemas[schema]["properties"][name][keyword] = getattr(settings, setting)
    made["components"]["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": f"a key made by `fullrank keys create`; its scopes are among {', '.join(SCOPES)}",
        }
    }
    for path, operations in made["paths"].items():
        for operation in operations.values():
            _finish(path, operation, settings)
    app.openapi_schema = made
    return made


def _finish(path: str, operation: dict[str, Any], settings: Settings) -> None:
    if "security" in operation:
        [[scope]] = operation["security"][0].values()
        statuses = (401, 403, 431) if scope == "admin" else (401, 403, 429, 431)
        operation["responses"] |= {str(s): problems(s)[s] for s in statuses}
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
        cap = CAPS.get(("SimilarQuery", parameter["name"]))
        if parameter["in"] == "query" and cap is not None:
            parameter["schema"][cap[0]] = getattr(settings, cap[1])
    if path in ("/v1/search", "/v1/match") or path.endswith("/similar"):
        operation["responses"]["200"]["headers"] = {
            "X-Model-Version": {
                "description": "version that answered",
                "schema": {"type": "string"},
            },
            "X-Model-Generation": {
                "description": "generation that answered",
                "schema": {"type": "integer"},
            },
        }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What a parameter may be where it is there: a query or a header knows no null."""
    given = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    return {**given[0], **{k: v for k, v in schema.items() if k != "anyOf"}} if given else schema


def main() -> None:
    """Print the document for the default settings."""
    from service.app import create_app

    made = create_app(Settings.defaults()).openapi()
    json.dump(made, sys.stdout, indent=1, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
