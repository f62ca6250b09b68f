"""POST /v1/search:batch: the answers of the single searches, of one generation, all or none."""

from __future__ import annotations

import pytest

from tests.api.conftest import Root
from tests.api.support import Client, answer_of, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio
SEARCHES = [
    {"query": "copy files"},
    {"query": "remote host", "limit": 2, "explain": True, "model": "bm25"},
    {"query": "files", "filter": {"section": 1}, "facets": ["section"]},
]


async def test_a_batch_gives_the_answers_of_single_searches(reader: Client) -> None:
    response = await reader.post("/v1/search:batch", json={"searches": SEARCHES})
    assert response.status_code == 200, response.text
    reply = response.json()
    assert reply["generation"] == int(response.headers["X-Model-Generation"])
    alone = [(await reader.post("/v1/search", json=asked)).json() for asked in SEARCHES]
    assert [answer_of(found) for found in reply["answers"]] == [answer_of(a) for a in alone]


@pytest.mark.parametrize(
    ("searches", "field"),
    [
        ([], "body.searches"),
        ([{"query": "x"}] * 33, "searches"),
        ([{"query": "x"}, {"query": "x" * 2001}], "searches.1.query"),
        ([{"query": "x"}, {"query": "x", "filter": {"no": 1}}], "searches.1.filter.no"),
        ([{"query": "x"}, {"query": "x", "facets": ["no"]}], "searches.1.facets.0"),
        ([{"query": "x", "facet_ranges": {"no": []}}], "searches.0.facet_ranges.no"),
        ([{"query": "x", "sort": [{"field": "no"}]}], "searches.0.sort.0.field"),
        ([{"query": "x", "group_by": {"field": "no"}}], "searches.0.group_by.field"),
        ([{"query": "x", "highlight": {"fields": ["no"]}}], "searches.0.highlight.fields.0"),
        ([{"query": "x", "cursor": "no"}], "searches.0.cursor"),
        ([{"query": "x", "cursor": "*", "mode": "fast"}], "searches.0.mode"),
        ([{"query": "x"}, {"query": "x", "min_seq": 1 << 40}], "searches.1.min_seq"),
        ([{"query": "x", "unknown": 1}], "body.searches.0.unknown"),
    ],
)
async def test_the_error_names_the_invalid_search_of_a_batch(
    reader: Client, searches: list[object], field: str
) -> None:
    response = await reader.post("/v1/search:batch", json={"searches": searches})
    assert check(response, 422, "invalid")["errors"][0]["field"] == field


async def test_a_batch_has_one_deadline_and_an_unknown_model_fails_it(root: Root) -> None:
    async with running(root.path, deadline_ms=1) as client:
        late = await client.post("/v1/search:batch", json={"searches": SEARCHES * 10})
        check(late, 503, "overloaded")
    async with running(root.path) as client:
        asked = {"searches": [{"query": "x"}, {"query": "x", "model": "gone"}]}
        check(await client.post("/v1/search:batch", json=asked), 404, "model-not-found")
