"""Searches treat live documents like those of the bundle: words, explanations, facets, similar, ads."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.models.expansion import ExpansionModel
from tests.api.support import CORPUS, Client, make_bundle, running

pytestmark = pytest.mark.anyio

UNHEARD = {"title": "Qxylo", "text": "zzyzx frobnicator zzyzx", "section": 8}


@pytest.mark.parametrize("mode", ["auto", "exact", "fast"])
async def test_a_document_without_a_known_word_is_found_by_its_exact_terms(
    client: Client, mode: str
) -> None:
    # Searched before the write: the embedding cached then must not answer the query now.
    before = await client.search("zzyzx", explain=True)
    assert all(hit["explanation"]["lexical"] == 0 for hit in before["hits"])
    seq = await client.write("new", UNHEARD)
    found = await client.search("ZZYZX", min_seq=seq, mode=mode, explain=True)
    assert found["certified"]
    assert found["total"] == before["total"] + 1
    hit = found["hits"][0]
    assert (hit["id"], hit["fields"]) == ("new", UNHEARD)
    parts = hit["explanation"]
    assert parts["words"] == [{"word": "zzyzx", "dense": 0.0, "lexical": parts["lexical"]}]
    assert parts["lexical"] > 1
    assert hit["score"] == pytest.approx(parts["dense"] + parts["lexical"] + parts["bias"])
    other = await client.search("neverheard zzyzy", min_seq=seq, explain=True)
    assert all(hit["explanation"]["lexical"] == 0 for hit in other["hits"])


async def test_added_documents_do_not_change_the_scores_of_the_bundle(client: Client) -> None:
    queries = ["copy files", "remote host unheardof", "日本語の検索", "frobnicator"]
    before = [await client.search(query, explain=True, limit=50) for query in queries]
    seq = await client.write("new", UNHEARD)
    for query, old in zip(queries, before, strict=True):
        found = await client.search(query, explain=True, limit=50, min_seq=seq)
        assert [hit for hit in found["hits"] if hit["id"] != "new"] == old["hits"]


async def test_facets_and_filters_include_live_documents(client: Client) -> None:
    await client.write("new", UNHEARD)
    await client.write("other", {"title": "x", "section": 1, "colour": "red"})
    seq = await client.write("linux/cp", {"title": "cp", "section": 7})
    found = await client.search("x", facets=["section", "colour"], min_seq=seq, facet_limit=3)
    held = [d.fields["section"] for d in CORPUS if "section" in d.fields and d.id != "linux/cp"]
    assert held == [1, 1]
    assert found["facets"]["section"] == {
        "values": [{"value": value, "count": count} for value, count in ((1, 3), (7, 1), (8, 1))],
        "distinct": 3,
        "missing": found["total"] - 5,
        "min": 1,
        "max": 8,
    }
    assert found["facets"]["colour"]["values"] == [{"value": "red", "count": 1}]
    for asked, ids in (
        ({"colour": "red"}, {"other"}),
        ({"section": {"gte": 8}}, {"new"}),
        ({"section": 7}, {"linux/cp"}),
        ({"section": 1}, {"linux/mv", "linux/ssh", "other"}),
    ):
        found = await client.search("x", filter=asked, limit=50)
        assert {hit["id"] for hit in found["hits"]} == ids
        assert found["total"] == len(ids)
    response = await client.post("/v1/search", json={"query": "x", "filter": {"colour": 5}})
    assert response.status_code == 422
    assert "has text, not numbers" in response.text


async def test_similar_works_for_a_live_document_and_leaves_it_out(client: Client) -> None:
    await client.write("new", UNHEARD)
    seq = await client.write("other", {"text": "another frobnicator"})
    reply = await client.get("/v1/documents/new/similar", params={"min_seq": seq, "limit": 20})
    hits = reply.json()["hits"]
    assert "new" not in [hit["id"] for hit in hits]
    [other] = [hit for hit in hits if hit["id"] == "other"]
    assert other["score"] == max(hit["score"] for hit in hits)
    await client.delete("/v1/documents/new")
    seq = (await client.delete("/v1/documents/other")).json()["seq"]
    gone = await client.get("/v1/documents/new/similar", params={"min_seq": seq})
    assert gone.status_code == 404


async def test_blocked_live_documents_are_not_placed(client: Client) -> None:
    seq = await client.write("new", UNHEARD)
    page = {"page": {"text": "zzyzx"}, "placements": [{"id": "top", "count": 20}], "min_seq": seq}
    for blocked in ([], ["new"], ["new", "linux/cp", "nowhere"]):
        reply = (await client.post("/v1/match", json={**page, "blocked_ids": blocked})).json()
        placed = [hit["id"] for hit in reply["placements"][0]["hits"]]
        assert ("new" in placed) == ("new" not in blocked)
        assert len(placed) == len(CORPUS) + 1 - len({"new", "linux/cp"} & set(blocked))


async def test_pages_of_an_answer_do_not_overlap(client: Client) -> None:
    for i in range(9):
        seq = await client.write(f"n{i}", {"text": f"copy files {'remote ' * (i % 3)}"})
    whole = (await client.search("copy remote", limit=50, min_seq=seq))["hits"]
    assert len(whole) == len(CORPUS) + 9
    assert whole == sorted(whole, key=lambda hit: (-hit["score"], hit["id"]))
    pages = [await client.search("copy remote", limit=4, offset=i) for i in range(0, 20, 4)]
    assert [hit for page in pages for hit in page["hits"]] == whole


async def test_a_model_without_live_documents_refuses_writes_with_the_reason(
    tmp_path: Path,
) -> None:
    make_bundle(tmp_path, "expanded", wrap=lambda model: ExpansionModel(model, 0.5, 2))
    async with running(tmp_path) as client:
        reply = await client.put("/v1/documents/new", json=UNHEARD)
        assert reply.status_code == 409
        assert reply.json()["type"].endswith(":document-not-accepted")
        lines = b'{"_id": "a", "text": "copy"}\n{"_id": "b", "title": 7}\n'
        kind = {"Content-Type": "application/x-ndjson"}
        reply = await client.post("/v1/documents:bulk", content=lines, headers=kind)
        assert reply.status_code == 409
        assert reply.json()["type"].endswith(":document-not-accepted")
        assert (await client.search("copy files"))["certified"]
