"""Searches by GET, and ranges of facets: the answers of a POST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from fullrank.replies import SearchReply
from tests.api.support import CORPUS, Client, answer_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"limit": 2, "offset": 1, "model": "bm25", "mode": "exact"},
        {"explain": True, "fields": ["title", "section"]},
        {"filter": {"section": 1}, "facets": ["section"], "facet_limit": 1},
        {"min_score": 0.5, "rules": False},
        {"query": "", "limit": 100},
        {"prefix": "none", "highlight": ["title", "text"], "limit": 0},
        {
            "highlight": ["text"],
            "facets": ["section"],
            "facet_mode": "disjunctive",
            "filter": {"section": 1},
        },
    ],
)
async def test_a_link_has_the_answer_of_a_post(reader: Client, more: dict[str, Any]) -> None:
    body = {"query": "copy files", **more}
    marked = {"highlight": {"fields": more["highlight"]}} if "highlight" in more else {}
    posted = await reader.post("/v1/search", json={**body, **marked})
    texts = {"filter": json.dumps(more["filter"])} if "filter" in more else {}
    got = await reader.get("/v1/search", params={"q": body.pop("query"), **body, **texts})
    assert got.status_code == 200, got.text
    TypeAdapter(SearchReply).validate_json(got.content)
    assert answer_of(got.json()) == answer_of(posted.json())
    assert got.headers["X-Model-Version"] == posted.headers["X-Model-Version"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "query.q"),
        ("?q=a&limit=-1", "query.limit"),
        ("?q=a&highlight=nowhere", "highlight.fields.0"),
        ("?q=a&limit=100000", "limit"),
        ("?q=a&sort=price", "query.sort"),
        ("?q=a&filter=7", "filter"),
        ("?q=a&filter={", "filter"),
        ("?q=a&facets=nowhere", "facets.0"),
        ("?q=a&min_score=nan", "query.min_score"),
    ],
)
async def test_a_bad_parameter_is_named(reader: Client, query: str, field: str) -> None:
    response = await reader.get(f"/v1/search{query}")
    assert response.status_code == 422, response.text
    assert [error["field"] for error in response.json()["errors"]] == [field]


async def test_ranges_count_the_documents_that_are_found(reader: Client) -> None:
    ranges = [{"to": 1}, {"from": 1}, {"from": 0.5, "to": 1.5}]
    body = {"query": "copy", "facet_ranges": {"section": ranges}, "limit": 1, "min_score": -100.0}
    response = await reader.post("/v1/search", json=body)
    assert response.status_code == 200, response.text
    TypeAdapter(SearchReply).validate_json(response.content)
    of_one = sum(document.fields.get("section") == 1 for document in CORPUS)
    assert response.json()["facet_ranges"] == {
        "section": [
            {"from": None, "to": 1.0, "count": 0},
            {"from": 1.0, "to": None, "count": of_one},
            {"from": 0.5, "to": 1.5, "count": of_one},
        ]
    }
    filtered = body | {"filter": {"not": {"section": 1}}}
    counts = (await reader.post("/v1/search", json=filtered)).json()["facet_ranges"]["section"]
    assert [one["count"] for one in counts] == [0, 0, 0]


@pytest.mark.parametrize(
    ("ranges", "field"),
    [
        ({"title": [{"to": 1}]}, "facet_ranges.title"),
        ({"section": [{"to": "2026-01-01T00:00:00Z"}]}, "facet_ranges.section.0.to"),
        ({"section": [{"from": 2, "to": 2}]}, "facet_ranges.section.0"),
        ({"section": [{"below": 2}]}, "body.facet_ranges.section.0.below"),
    ],
)
async def test_a_range_that_does_not_fit_is_named(
    reader: Client, ranges: dict[str, Any], field: str
) -> None:
    response = await reader.post("/v1/search", json={"query": "copy", "facet_ranges": ranges})
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]
