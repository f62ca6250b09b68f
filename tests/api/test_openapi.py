"""The OpenAPI document: committed, complete, and kept to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.settings import Settings
from tests.api.support import AUTH, at, make_bundle, served, settings_for

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
ADVICE = "docs/openapi.json is stale: python -m service.openapi > docs/openapi.json"


def test_the_committed_document_is_the_one_served() -> None:
    made = create_app(Settings.defaults()).openapi()
    assert json.loads(DOCUMENT.read_text()) == json.loads(json.dumps(made)), ADVICE


def test_every_error_is_a_problem_document() -> None:
    for path, operations in create_app(Settings.defaults()).openapi()["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if status != "200":
                    assert list(response["content"]) == ["application/problem+json"], (
                        path,
                        method,
                        status,
                    )


def test_caps_follow_the_settings(tmp_path: Path) -> None:
    made = create_app(settings_for(tmp_path, max_limit=7, max_query_chars=11)).openapi()
    search = made["components"]["schemas"]["SearchRequest"]["properties"]
    assert search["limit"]["maximum"] == 7
    assert search["query"]["maxLength"] == 11


@schemathesis.serializer("application/x-ndjson")
def _as_lines(ctx: Any, value: Any) -> bytes:
    """Any text is a body of lines; what else comes is one line."""
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace")


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OPERATIONS = [
    (method.upper(), path)
    for path, operations in json.loads(DOCUMENT.read_text())["paths"].items()
    for method in operations
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "bm25", created=at(1))
    make_bundle(root, "learned", n_dense=4, created=at(2))
    with served(root) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_server_keeps_to_the_document(schema: Any, method: str, path: str) -> None:
    operation = schema[path][method]

    @hypothesis_settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, headers=AUTH)

    run()
