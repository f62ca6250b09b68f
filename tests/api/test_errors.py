"""Every error has one shape, whichever part of the service raises it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.http.schemas import ProblemDocument
from tests.api.conftest import Root
from tests.api.support import AUTH, running

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
QUERY = {"query": "copy"}
PAGE = {"page": {"text": "x"}, "placements": [{"id": "a"}]}


@pytest.fixture(scope="module")
async def client(two_models: Root) -> AsyncIterator[httpx.AsyncClient]:
    """One service for all tests of this module: what it refuses changes nothing."""
    async with running(two_models.path) as client:
        yield client


def check(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The response is a problem document of this kind; gives it."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    ProblemDocument.model_validate(problem, strict=True)
    assert problem["type"] == f"urn:fullrank:problem:{slug}"
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["X-Request-Id"]
    return problem


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "slug"),
    [
        ("GET", "/nowhere", None, 404, "not-found"),
        ("GET", "/v1/models/", None, 404, "not-found"),
        ("GET", "/v1/match", None, 405, "method-not-allowed"),
        ("POST", "/v1/search", {**QUERY, "model": "unknown"}, 404, "model-not-found"),
        ("POST", "/v1/match", {**PAGE, "model": "unknown"}, 404, "model-not-found"),
        ("GET", "/v1/documents/none/such/similar", None, 404, "document-not-found"),
        ("GET", "/v1/documents/ls/similar?model=unknown", None, 404, "model-not-found"),
        ("GET", "/v1/documents/ls/similar?limit=0", None, 422, "invalid"),
        ("GET", "/v1/documents/ls/similar?limit=101", None, 422, "invalid"),
        ("GET", "/v1/documents/ls/similar?limit=many", None, 422, "invalid"),
        ("GET", "/v1/documents/ls/similar?depth=1", None, 422, "invalid"),
        ("POST", "/v1/models/none-1:load", None, 401, "unauthorized"),
        ("PUT", "/v1/models/aliases/default", {"version": "none-1"}, 401, "unauthorized"),
    ],
)
async def test_every_error_is_a_problem_document(
    client: httpx.AsyncClient, method: str, path: str, body: Any, status: int, slug: str
) -> None:
    check(await client.request(method, path, json=body), status, slug)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/search", {}, "body.query"),
        ("/v1/search", {"query": ""}, "body.query"),
        ("/v1/search", {"query": 7}, "body.query"),
        ("/v1/search", {"query": None}, "body.query"),
        ("/v1/search", {"query": "x" * 2001}, "query"),
        ("/v1/search", {**QUERY, "limit": 0}, "body.limit"),
        ("/v1/search", {**QUERY, "limit": 101}, "limit"),
        ("/v1/search", {**QUERY, "limit": "10"}, "body.limit"),
        ("/v1/search", {**QUERY, "limit": 1.5}, "body.limit"),
        ("/v1/search", {**QUERY, "limit": 10.0}, "body.limit"),
        ("/v1/search", {**QUERY, "limit": True}, "body.limit"),
        ("/v1/search", {**QUERY, "limit": 10**30}, "body.limit"),
        ("/v1/search", {**QUERY, "offset": -1}, "body.offset"),
        ("/v1/search", {**QUERY, "offset": 10_001}, "offset"),
        ("/v1/search", {**QUERY, "explain": 1}, "body.explain"),
        ("/v1/search", {**QUERY, "explain": "true"}, "body.explain"),
        ("/v1/search", {**QUERY, "mode": "fastest"}, "body.mode"),
        ("/v1/search", {**QUERY, "fields": "title"}, "body.fields"),
        ("/v1/search", {**QUERY, "fields": ["x"] * 65}, "body.fields"),
        ("/v1/search", {**QUERY, "model": ""}, "body.model"),
        ("/v1/search", {**QUERY, "unknown": 1}, "body.unknown"),
        ("/v1/search", [QUERY], "body"),
        ("/v1/match", {**PAGE, "placements": []}, "body.placements"),
        ("/v1/match", {**PAGE, "placements": [{"id": "a"}] * 17}, "body.placements"),
        ("/v1/match", {**PAGE, "placements": [{"id": "a", "count": 65}]}, "body.placements"),
        ("/v1/match", {**PAGE, "page": {"text": "x" * 200_001}}, "text"),
        ("/v1/match", {**PAGE, "page": {"body": "x"}}, "body.page.body"),
        ("/v1/match", {"page": {}}, "body.placements"),
    ],
)
async def test_the_error_names_the_invalid_field(
    client: httpx.AsyncClient, path: str, body: Any, field: str
) -> None:
    problem = check(await client.post(path, json=body), 422, "invalid")
    assert any(error["field"].startswith(field) for error in problem["errors"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'"text"',
        b'{"query": NaN}',
        b'{"query": "x", "limit": NaN}',
        b'{"query": "x", "limit": Infinity}',
        b'{"query": "x", "limit": 1e400}',
        b'{"query": "\\ud800"}',
        b'{"query": "x", "query": "y"}',
        b'{"query": "x", "filter": {"a": 1, "a": 2}}',
        b'{"query": "x", "filter": {"a": "\\ud800"}}',
        b'{"query": "x", "filter": {"\\ud800": 1}}',
        b'{"query": "x", "filter": {"a": NaN}}',
        b'{"query": "x", "filter": {"a": 1e400}}',
        b'{"query": "x", "filter": ' + b'{"not": ' * 9999 + b"{}" + b"}" * 10_000,
        b"[" * 200_000,
        b'{"query": "x", "fields": ["\\udfff"]}',
        b'{"query": "x", "model": "\\ud800"}',
    ],
)
async def test_a_body_that_is_not_strict_json_gets_422(
    client: httpx.AsyncClient, raw: bytes
) -> None:
    response = await client.post("/v1/search", content=raw, headers=JSON)
    check(response, 422, "invalid")


async def test_a_body_that_is_not_utf_8_gets_400(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/search", content=b'{"query": "\xff\xfe"}', headers=JSON)
    check(response, 400, "bad-request")


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/jsonl",
        "application/vnd.x+json",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1; charset=utf-8",
        "application/json; profile=x",
        "text/plain, application/json",
    ],
)
async def test_another_content_type_gets_415(client: httpx.AsyncClient, kind: Any) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = await client.post("/v1/search", content=b'{"query": "x"}', headers=headers)
    check(response, 415, "unsupported-media-type")


@pytest.mark.parametrize(
    "kind",
    ["Application/JSON", "application/json;charset=UTF-8", 'application/json; charset="utf-8"'],
)
async def test_any_spelling_of_the_json_content_type_is_accepted(
    client: httpx.AsyncClient, kind: str
) -> None:
    response = await client.post(
        "/v1/search", content=b'{"query": "x"}', headers={"Content-Type": kind}
    )
    assert response.status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
async def test_other_encodings_than_utf_8_are_refused(
    client: httpx.AsyncClient, encoding: str
) -> None:
    content = '{"query": "x"}'.encode(encoding)
    response = await client.post("/v1/search", content=content, headers=JSON)
    assert response.status_code in (400, 422)


async def test_a_body_above_the_size_limit_gets_413(client: httpx.AsyncClient) -> None:
    async def chunks() -> Any:
        for _ in range(40):
            yield b"x" * 65536

    told = await client.post("/v1/search", content=b" " * (1 << 21), headers=JSON)
    check(told, 413, "too-large")
    untold = await client.post("/v1/search", content=chunks(), headers=JSON)
    check(untold, 413, "too-large")


async def test_an_unexpected_error_reveals_no_details(
    root: Root, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr("service.search.local.rank_view", broken)
    monkeypatch.setattr("service.models.registry.Registry.available", broken)
    async with running(root.path) as client:
        for response in (
            await client.post("/v1/search", json=QUERY),
            await client.get("/v1/documents/ls/similar"),
            await client.get("/v1/models"),
        ):
            problem = check(response, 500, "internal")
            assert "secret" not in response.text
            assert problem["request_id"] in caplog.text


async def test_valid_request_ids_are_kept_and_others_replaced(
    client: httpx.AsyncClient,
) -> None:
    plain = await client.get("/livez", headers={"X-Request-Id": "abc-1.2_3"})
    assert plain.headers["X-Request-Id"] == "abc-1.2_3"
    odd = await client.get("/nowhere", headers={"X-Request-Id": "<script>"})
    assert check(odd, 404, "not-found")["request_id"] != "<script>"


async def test_a_service_without_bundles_answers_503(tmp_path: Any) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        async with running(folder) as client:
            assert (await client.get("/livez")).status_code == 200
            assert "no bundle" in check(await client.get("/readyz"), 503, "not-ready")["detail"]
            check(await client.post("/v1/search", json=QUERY), 503, "not-ready")
            assert (await client.get("/v1/models")).json()["models"] == []
            activate = await client.put(
                "/v1/models/aliases/default", json={"version": "a-1"}, headers=AUTH
            )
            check(activate, 404, "model-not-found")
