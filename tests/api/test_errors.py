"""Every error has one shape, whichever part of the service raises it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from fullrank_service.http.schemas import ProblemDocument
from fullrank_service.search.schemas import SearchQuery, SearchRequest
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, ok, running

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
QUERY = {"query": "copy"}
# Its normal form has 18 characters, three of them spaces.
LONGER = "ﷺ"
PAGE = {"page": {"text": "x"}, "placements": [{"id": "a"}]}


@pytest.fixture(scope="module")
async def client(two_models: Root) -> AsyncIterator[Client]:
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
    client: Client, method: str, path: str, body: Any, status: int, slug: str
) -> None:
    check(await client.request(method, path, json=body), status, slug)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/search", {}, "body.query"),
        ("/v1/search", {"query": 7}, "body.query"),
        ("/v1/search", {"query": None}, "body.query"),
        ("/v1/search", {"query": "x" * 2001}, "query"),
        ("/v1/search", {"query": LONGER * 200}, "query"),
        ("/v1/search:batch", {"searches": [QUERY, {"query": LONGER * 200}]}, "searches.1.query"),
        ("/v1/match", {**PAGE, "page": {"title": LONGER * 300}}, "body.page.title"),
        ("/v1/match", {**PAGE, "page": {"keywords": [LONGER * 20]}}, "body.page.keywords.0"),
        ("/v1/match", {**PAGE, "page": {"text": LONGER * 20_000}}, "text"),
        ("/v1/search", {**QUERY, "limit": -1}, "body.limit"),
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
        ("/v1/match", {**PAGE, "acat": []}, "body.acat"),
        ("/v1/match", {**PAGE, "per_advertiser": 0}, "body.per_advertiser"),
        ("/v1/match", {**PAGE, "rank": "price"}, "body.rank"),
        ("/v1/match", {**PAGE, "placements": [{"id": "a", "bidfloor": -1}]}, "body.placements"),
        ("/v1/match", {**PAGE, "bcta": ["1"]}, "body.bcta"),
    ],
)
async def test_the_error_names_the_invalid_field(
    client: Client, path: str, body: Any, field: str
) -> None:
    problem = check(await client.post(path, json=body), 422, "invalid")
    assert any(error["field"].startswith(field) for error in problem["errors"])


DECAY = {"field": "section", "decay": {"origin": 1, "scale": 1}}
TWO = "cannot be given with {}: give one of them"
NEITHER = "must be text or a number"


@pytest.mark.parametrize(
    ("path", "body", "field", "reason"),
    [
        ("/v1/search", {**QUERY, "sort": [{"field": "x", "by": 1}]}, "sort.0.by",
         "unknown field; there are field, order, near"),
        ("/v1/search", {**QUERY, "facet_ranges": {"x": [{"above": 1}]}}, "facet_ranges.x.0.above",
         "unknown field; there are from, to"),
        ("/v1/search:batch", {"searches": [{**QUERY, "group_by": {"field": "x", "of": 1}}]}, "searches.0.group_by.of",
         "unknown field; there are field, limit"),
        ("/v1/search", {**QUERY, "facet_ranges": {"price": [{"from": True}]}}, "facet_ranges.price.0.from", NEITHER),
        ("/v1/search", {**QUERY, "facet_ranges": {"price": [{"to": []}]}}, "facet_ranges.price.0.to", NEITHER),
        ("/v1/search", {**QUERY, "boost": [{"field": "x", "decay": {"origin": True, "scale": 1}}]},
         "boost.0.decay.origin", "must be text, a number, or a point with lat and lon"),
        ("/v1/search", {**QUERY, "boost": [{"field": "x", "decay": {"origin": 1, "scale": {}}}]},
         "boost.0.decay.scale", NEITHER),
        ("/v1/search", {**QUERY, "boost": [{**DECAY, "log": True}]}, "boost.0.log", TWO.format("decay")),
        ("/v1/search", {**QUERY, "boost": [{"field": "x"}]}, "boost.0.decay", "is missing: give decay, or log"),
        ("/v1/search", {**QUERY, "highlight": {"fields": ["text"], "pre": "<b>"}}, "highlight.post",
         "is missing: give both pre and post, or none"),
        ("/v1/match", {**PAGE, "placements": [{"id": "a", "cout": 1}]}, "placements.0.cout",
         "unknown field; there are id, count, bidfloor, bidfloorcur, min_score"),
        ("/v1/match", {**PAGE, "bcat": ["1"], "acat": ["2"]}, "acat", TWO.format("bcat")),
        ("/v1/match", {**PAGE, "wseat": ["1"], "bseat": ["2"]}, "bseat", TWO.format("wseat")),
        ("/v1/match", {**PAGE, "cur": "USD", "placements": [{"id": "a"}, {"id": "b", "bidfloorcur": "EUR"}]},
         "placements.1.bidfloorcur", "is not cur, USD: no ad has both currencies"),
        ("/v1/match", {**PAGE, "user": {"id": "u1"}, "user_id": "u2"}, "user.id", "is not user_id: give one of them"),
        ("/v1/match", {**PAGE, "user": {"id": "u" * 101}}, "user.id", "must have at most 100 characters"),
        ("/v1/match", {**PAGE, "user": {"id": ""}}, "user.id", "must have at least 1 character"),
        ("/v1/match", {**PAGE, "badv": ["a.example", "a b"]}, "badv", "item 1 is not a domain, such as shop.example"),
        ("/v1/match", {**PAGE, "page": {}}, "page",
         "is empty: give a title, a text, keywords, or the url of a known page"),
        ("/v1/match", {**PAGE, "page": {"title": " ", "keywords": ["\n"]}}, "page",
         "is empty: give a title, a text, keywords, or the url of a known page"),
        ("/v1/match", {**PAGE, "page": {"url": "#top", "text": "x"}}, "page.url",
         "names no page: it is blank without its fragment"),
    ],
)  # fmt: skip
async def test_an_error_has_the_path_of_the_field_and_a_plain_reason(
    client: Client, path: str, body: Any, field: str, reason: str
) -> None:
    problem = check(await client.post(path, json=body), 422, "invalid")
    assert problem["errors"] == [{"field": f"body.{field}", "reason": reason}]


async def test_an_unknown_field_of_a_search_lists_all_fields(client: Client) -> None:
    for path, method in (("/v1/search", "POST"), ("/v1/search?q=x&unknown=1", "GET")):
        body = {**QUERY, "unknown": 1} if method == "POST" else None
        [error] = check(await client.request(method, path, json=body), 422, "invalid")["errors"]
        model = SearchRequest if method == "POST" else SearchQuery
        assert error["reason"] == f"unknown field; there are {', '.join(model.model_fields)}"


LINK = "/v1/search?q=copy"
SIMILAR = "/v1/documents/ls/similar?limit=1"


@pytest.mark.parametrize(
    ("path", "field", "reason"),
    [
        (f"{LINK}&limit=1&limit=2", "limit", "is given twice"),
        (f"{LINK}&q=tea", "q", "is given twice"),
        (f"{LINK}&limit=1&l%69mit=1", "limit", "is given twice"),
        (f"{LINK}&limit=1.0", "limit", "must be a whole number"),
        (f"{LINK}&limit=%2B1", "limit", "must be a whole number"),
        (f"{LINK}&limit=1_0", "limit", "must be a whole number"),
        (f"{LINK}&offset=", "offset", "must be a whole number"),
        (f"{LINK}&limit=true", "limit", "must be a whole number"),
        (f"{LINK}&min_score=1_0", "min_score", "must be a number"),
        (f"{LINK}&min_score=%205", "min_score", "must be a number"),
        (f"{LINK}&min_score=nan", "min_score", "must be a number"),
        (f"{LINK}&explain=1", "explain", "must be true or false"),
        (f"{LINK}&explain=on", "explain", "must be true or false"),
        ("/v1/search?q=caf%ff", "q", "is not UTF-8"),
        (f"{LINK}&fields=caf%ff", "fields", "is not UTF-8"),
        (f"{SIMILAR}&limit=2", "limit", "is given twice"),
        (f"{SIMILAR}&min_seq=0.0", "min_seq", "must be a whole number"),
        (f"{SIMILAR}&model=%ff", "model", "is not UTF-8"),
        ("/v1/complete?prefix=c&prefix=d", "prefix", "is given twice"),
        ("/v1/complete?prefix=c%ff", "prefix", "is not UTF-8"),
        (f"/v1/complete?prefix={LONGER * 20}", "prefix", "must have at most 256 characters in the Unicode form NFKC"),
        ("/v1/complete?prefix=c&limit=1.0", "limit", "must be a whole number"),
        ("/v1/documents/ls/together?limit=1&limit=1", "limit", "is given twice"),
        ("/v1/documents/ls?min_seq=0&min_seq=0", "min_seq", "is given twice"),
        ("/v1/rules?limit=1.0", "limit", "must be a whole number"),
        ("/v1/rules?after=%ff", "after", "is not UTF-8"),
        ("/v1/analytics?days=1&days=2", "days", "is given twice"),
    ],
)  # fmt: skip
async def test_a_query_string_is_as_strict_as_a_body(
    client: Client, path: str, field: str, reason: str
) -> None:
    problem = check(await client.get(path, headers=AUTH), 422, "invalid")
    assert problem["errors"] == [{"field": f"query.{field}", "reason": reason}]


async def test_lists_in_a_query_string_are_repeated_parameters(client: Client) -> None:
    reply = ok(await client.get(f"{LINK}&fields=title&fields=text&&facets=section&offset=-0"))
    assert reply["hits"][0]["fields"].keys() == {"title", "text"}


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
        b"[" * 200_000,
        b'{"query": "x", "fields": ["\\udfff"]}',
        b'{"query": "x", "model": "\\ud800"}',
    ],
)
async def test_a_body_that_is_not_strict_json_gets_422(client: Client, raw: bytes) -> None:
    response = await client.post("/v1/search", content=raw, headers=JSON)
    check(response, 422, "invalid")


async def test_a_body_that_is_not_utf_8_gets_400(client: Client) -> None:
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
async def test_another_content_type_gets_415(client: Client, kind: Any) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = await client.post("/v1/search", content=b'{"query": "x"}', headers=headers)
    check(response, 415, "unsupported-media-type")


@pytest.mark.parametrize(
    "kind",
    ["Application/JSON", "application/json;charset=UTF-8", 'application/json; charset="utf-8"'],
)
async def test_any_spelling_of_the_json_content_type_is_accepted(client: Client, kind: str) -> None:
    response = await client.post(
        "/v1/search", content=b'{"query": "x"}', headers={"Content-Type": kind}
    )
    assert response.status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
async def test_other_encodings_than_utf_8_are_refused(client: Client, encoding: str) -> None:
    content = '{"query": "x"}'.encode(encoding)
    response = await client.post("/v1/search", content=content, headers=JSON)
    assert response.status_code in (400, 422)


async def test_a_body_above_the_size_limit_gets_413(client: Client) -> None:
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
    broken = Mock(side_effect=ZeroDivisionError("a secret of the inside"))
    monkeypatch.setattr("fullrank_service.search.ranking.rank_view", broken)
    monkeypatch.setattr("fullrank_service.models.registry.Registry.available", broken)
    async with running(root.path) as client:
        for response in (
            await client.post("/v1/search", json=QUERY),
            await client.get("/v1/documents/ls/similar"),
            await client.get("/v1/models"),
        ):
            problem = check(response, 500, "internal")
            assert "secret" not in response.text
            assert problem["request_id"] in caplog.text


async def test_valid_request_ids_are_kept_and_others_replaced(client: Client) -> None:
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
