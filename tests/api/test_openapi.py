"""The OpenAPI document: committed, complete, and kept to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings
from tests.api.fuzzing import fuzz, how_many
from tests.api.support import AUTH, at, make_bundle, running, served, settings_for

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
ADVICE = "docs/openapi.json is stale: python -m fullrank_service.app > docs/openapi.json"


def test_the_committed_document_is_the_one_served() -> None:
    made = create_app(Settings.defaults()).openapi()
    assert json.loads(DOCUMENT.read_text()) == json.loads(json.dumps(made)), ADVICE


@pytest.mark.anyio
async def test_every_path_of_a_collection_is_documented_and_there(tmp_path: Path) -> None:
    paths = create_app(Settings.defaults()).openapi()["paths"]
    # Pages and the erasure of a person concern all collections.
    shared = {"/v1/pages", "/v1/events/users/{id}", "/livez", "/readyz", "/metrics"}
    own = {path: ops for path, ops in paths.items() if path.startswith("/v1/collections/")}
    assert {
        path.replace("/v1/", "/v1/collections/{name}/")
        for path in paths.keys() - own.keys() - shared
    } == {*own}
    make_bundle(tmp_path, "learned")
    async with running(tmp_path) as client:
        for path, operations in own.items():
            for method, operation in operations.items():
                assert operation["parameters"][0]["name"] == "name"
                for name, is_there in (("learned", True), ("Learned", False)):
                    url = path.replace("{name}", name).replace("{", "").replace("}", "")
                    found = await client.request(method, url, headers=AUTH)
                    is_unknown = "urn:fullrank:problem:not-found" in found.text
                    assert is_unknown != is_there, (method, url)


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
        done = fuzz(url, examples=3, seed=1, fit=True, with_collections=False)
    assert done.code == 0, done.output[-20_000:]
    assert f"Tested: {how_many(with_collections=False)}" in done.output
    assert done.cases > 400
