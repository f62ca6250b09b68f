"""The OpenAPI document: committed, complete, and kept to."""

from __future__ import annotations

import json
from pathlib import Path

from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings
from tests.api.fuzzing import fuzz, how_many
from tests.api.support import at, make_bundle, served, settings_for

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
ADVICE = "docs/openapi.json is stale: python -m fullrank_service.app > docs/openapi.json"


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


def test_the_server_keeps_to_the_document(tmp_path: Path) -> None:
    """Some hundred requests of every kind, with every check; ten thousand in tests/slow/test_fuzzing.py."""
    make_bundle(tmp_path, "learned", created=at(1))
    make_bundle(tmp_path, "learned", n_dense=4, created=at(2))
    with served(tmp_path, FULLRANK_ANONYMOUS="none") as url:
        done = fuzz(url, examples=3, seed=1, fit=True)
    assert done.code == 0, done.output[-20_000:]
    assert f"Tested: {how_many()}" in done.output
    assert done.cases > 400
