"""The OpenAPI document: committed, complete, and kept to."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.settings import Settings
from tests.api.support import AUTH, at, make_bundle, settings_for

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
