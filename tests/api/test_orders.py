"""Orders over HTTP: what they do to an answer; the orders themselves are tested in tests/unit/fullrank/search."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Root
from tests.api.support import Client, running

pytestmark = pytest.mark.anyio

WORDS: dict[str, Any] = {"query": "copy files", "model": "bm25", "min_score": -1.0}


async def search(client: Client, **body: Any) -> dict[str, Any]:
    return await client.search(**(WORDS | body))


async def test_an_explanation_has_the_boost_of_the_score(reader: Client) -> None:
    boost = [{"field": "section", "decay": {"origin": 1, "scale": 3}, "weight": 50}]
    plain = await search(reader, explain=True)
    reply = await search(reader, explain=True, boost=boost)
    assert all(hit["explanation"]["boost"] == 0 for hit in plain["hits"])
    scores = {hit["id"]: hit["score"] for hit in plain["hits"]}
    assert reply["certified"]
    assert reply["total"] == len(scores)
    for hit in reply["hits"]:
        parts = hit["explanation"]
        assert parts["boost"] == (50 if hit["fields"].get("section") == 1 else 0)
        assert hit["score"] == pytest.approx(scores[hit["id"]] + parts["boost"])
    assert [hit["score"] for hit in reply["hits"]] == sorted(
        (hit["score"] for hit in reply["hits"]), reverse=True
    )


async def test_only_documents_that_are_found_are_sorted(root: Root) -> None:
    async with running(root.path) as client:
        for id, made in (("old", "2001-05-01"), ("new", "2020-01-01T00:00:00+02:00"), ("far", "")):
            text = "nothing" if id == "far" else "copy"
            written = await client.put(
                f"/v1/documents/{id}?model=bm25", json={"title": id, "text": text, "made": made}
            )
        seq = written.json()["seq"]
        sort = [{"field": "made", "order": "desc"}]
        body = {"min_score": 0.01, "min_seq": seq, "query": "copy", "sort": sort}
        reply = await search(client, **body)
        ids = [hit["id"] for hit in reply["hits"]]
        assert ids == ["new", "old", "linux/cp", "linux/scp"]
        assert reply["total"] == 4
        page = await search(client, **body, limit=2, offset=1)
        assert [hit["id"] for hit in page["hits"]] == ids[1:3]


async def test_groups_and_diversity_leave_total_as_it_is(reader: Client) -> None:
    plain = await search(reader)
    reply = await search(reader, group_by={"field": "section"}, diversity=0.4)
    assert reply["total"] == plain["total"]
    sections = [hit["fields"].get("section") for hit in reply["hits"]]
    assert sections.count(1) == 1
    assert len(sections) == 5


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"sort": [{"field": "title"}]}, "sort.0.field", "fields to sort by: section"),
        ({"sort": [{"field": "section", "order": "up"}]}, "body.sort.0.order", "'asc' or 'desc'"),
        ({"sort": [{"field": "section"}], "diversity": 0.1}, "diversity", "give one"),
        ({"boost": [{"field": "title", "log": True}]}, "boost.0.field", "as in: section"),
        ({"boost": [{"field": "section"}]}, "body.boost.0.decay", "give decay, or log"),
        ({"boost": [{"field": "section", "log": True}] * 9}, "body.boost", "at most 8"),
        ({"boost": [{"field": "section", "log": True, "weight": 1e9}]}, "body.boost.0.weight", ""),
        ({"group_by": {"field": "nowhere"}}, "group_by.field", "known fields: section"),
        ({"diversity": 1.5}, "body.diversity", "less than or equal to 1"),
    ],
)
async def test_what_does_not_fit_is_named(
    reader: Client, body: dict[str, Any], field: str, reason: str
) -> None:
    response = await reader.post("/v1/search", json=WORDS | body)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["field"] == field
    assert reason in error["reason"]
