"""A document is found only with evidence: hits, totals, facets, placements and metrics agree on it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.models.unseen import OpenModel
from fullrank.retrieval import Floor
from fullrank.search import searchable
from tests.api.support import CORPUS, Client, make_bundle, running

pytestmark = pytest.mark.anyio

FLOOR = Floor(dense=0.4, lexical=0.6)


async def search(client: Client, query: str, **body: Any) -> dict[str, Any]:
    return await client.search(query, **{"limit": 100, **body})


@pytest.mark.parametrize("query", ["copy files", "remote host ssh", "move files", "東京"])
async def test_hits_total_and_facets_are_those_with_evidence(tmp_path: Path, query: str) -> None:
    make_bundle(tmp_path, "m", n_dense=4, floor=FLOOR)
    bundle = open_bundle(find_bundle(tmp_path, "m"))
    encoded = bundle.encode(query)
    dense = bundle.encoded.whole().dense.astype(float) @ encoded.dense[0].astype(float)
    shared = bundle.encoded.whole().sparse.csr().toarray() @ encoded.sparse.csr().toarray()[0]
    ids = bundle.documents.ids
    expected = {ids[i] for i in range(len(ids)) if dense[i] >= 0.4 or shared[i] >= 0.6}
    assert 0 < len(expected) < len(CORPUS)
    async with running(tmp_path) as client:
        found = await search(client, query, facets=["section"])
        assert {hit["id"] for hit in found["hits"]} == expected
        assert (found["total"], found["total_at_least"]) == (len(expected), None)
        section = found["facets"]["section"]
        counted = sum(value["count"] for value in section["values"]) + section["missing"]
        assert counted == len(expected)
        pages = [await search(client, query, limit=2, offset=place) for place in range(0, 8, 2)]
        assert [hit for page in pages for hit in page["hits"]] == found["hits"]
        assert {page["total"] for page in pages} == {len(expected)}
    direct = bundle.search(query, 100)
    assert [hit.id for hit in direct] == [hit["id"] for hit in found["hits"]]
    assert direct.total == len(expected)


async def test_a_query_that_the_model_knows_nothing_about_finds_nothing(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", n_dense=4, floor=FLOOR)
    async with running(tmp_path) as client:
        for query in ("zzzqqqxxy", "🎉", "?"):
            found = await search(client, query, facets=["section"])
            assert (found["hits"], found["total"]) == ([], 0)
            assert found["facets"]["section"]["values"] == []
            assert found["facets"]["section"]["missing"] == 0
        metrics = (await client.get("/metrics")).text
        assert "fullrank_zero_results_total 3.0" in metrics
        placements = [{"id": "top", "count": 2}, {"id": "side", "count": 2}]
        match = {"page": {"title": "zzzqqqxxy"}, "placements": placements}
        filled = (await client.post("/v1/match", json=match)).json()["placements"]
        assert [(place["id"], place["hits"]) for place in filled] == [("top", []), ("side", [])]
        short = {"page": {"title": "東京"}, "placements": placements}
        filled = (await client.post("/v1/match", json=short)).json()["placements"]
        assert [len(place["hits"]) for place in filled] == [1, 0]


async def test_pieces_of_an_unfamiliar_word_are_no_evidence(tmp_path: Path) -> None:
    """Also through HTTP, where facets and totals follow; a live document makes its words familiar."""
    floor = replace(FLOOR, lexical=0.1, share=0.8, odds=1.0, unfamiliar=9.0)
    make_bundle(tmp_path, "m", n_dense=4, floor=floor)
    async with running(tmp_path) as client:
        for query in ("갱쓔뷁copy", "갱 뷁東京쓔"):
            found = await search(client, query, facets=["section"])
            assert (found["hits"], found["total"]) == ([], 0)
            assert found["facets"]["section"]["values"] == []
        for query in ("뷁 copy", "copy", "cop"):
            assert (await search(client, query))["hits"]
        assert (await search(client, "갱쓔뷁copy", min_score=-9.0))["hits"]
        written = await client.put("/v1/documents/new", json={"title": "갱쓔뷁copy"})
        seq = written.json()["seq"]
        hits = (await search(client, "갱쓔뷁copy", min_seq=seq))["hits"]
        assert hits[0]["id"] == "new"


async def test_min_score_replaces_the_floor(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", n_dense=4, floor=FLOOR)
    make_bundle(tmp_path, "free", n_dense=4)
    async with running(tmp_path) as client:
        everything = (await search(client, "copy files", model="free"))["hits"]
        assert len(everything) == len(CORPUS)
        for hit in everything:
            kept = [one for one in everything if one["score"] >= hit["score"]]
            found = await search(client, "copy files", model="m", min_score=hit["score"])
            assert [one["id"] for one in found["hits"]] == [one["id"] for one in kept]
            assert found["total"] == len(kept)
        response = await client.post("/v1/search", json={"query": "a", "min_score": "high"})
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "body.min_score"


async def test_many_documents_are_counted_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searchable, "COUNTED", 3)
    make_bundle(tmp_path, "m", floor=Floor(lexical=0.01))
    async with running(tmp_path) as client:
        found = await search(client, "files", limit=2)
        assert (found["total"], found["total_at_least"]) == (None, 3)
        found = await search(client, "files", limit=2, facets=["section"])
        assert (found["total"], found["total_at_least"]) == (6, None)


async def test_the_last_word_matches_by_prefix_below_whole_words(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", floor=Floor(lexical=0.1))
    async with running(tmp_path) as client:
        whole = await search(client, "list directory")
        begun = await search(client, "list direc", explain=True)
        assert begun["hits"][0]["id"] == whole["hits"][0]["id"] == "ls"
        words = begun["hits"][0]["explanation"]["words"]
        assert {word["word"] for word in words if word["lexical"] > 0} >= {"directory"}
        assert 0 < begun["hits"][0]["score"] < whole["hits"][0]["score"]
        for body in ({"query": "direc", "prefix": "none"}, {"query": "direc "}):
            response = await client.post("/v1/search", json=body)
            assert response.json()["hits"] == []
        refused = await client.post("/v1/search", json={"query": "direc", "prefix": "first"})
        assert refused.json()["errors"][0]["field"] == "body.prefix"


async def test_a_begun_word_needs_its_share_of_the_evidence(tmp_path: Path) -> None:
    """A floor that whole words reach and their completions, which weigh 0.4 of them, do not."""
    make_bundle(tmp_path, "m", floor=Floor(lexical=0.8))
    async with running(tmp_path) as client:
        whole = await search(client, "directory", prefix="none")
        begun = await search(client, "direc")
        assert [hit["id"] for hit in whole["hits"]] == ["ls"]
        # Directories, of linux/cp, begin with it too.
        scores = {hit["id"]: hit["score"] for hit in begun["hits"]}
        assert {*scores} == {"ls", "linux/cp"}
        assert 0 < min(scores.values()) < 0.8 < whole["hits"][0]["score"]
        assert begun["total"] == 2


@pytest.mark.parametrize("mode", ["exact", "fast"])
async def test_words_that_weigh_too_little_are_evidence_where_there_is_no_other(
    tmp_path: Path, mode: str
) -> None:
    make_bundle(tmp_path, "m", floor=Floor(lexical=100.0, share=0.5, odds=10.0))
    bundle = open_bundle(find_bundle(tmp_path, "m"))
    ids = bundle.documents.ids
    async with running(tmp_path) as client:
        for query in ("files", "copy files", "files zzzqqqxxy"):
            encoded = bundle.encode(query).sparse.csr().toarray()[0]
            shared = bundle.encoded.whole().sparse.csr().toarray() @ encoded
            expected = {ids[i] for i in np.flatnonzero(shared > 0).tolist()}
            found = await search(client, query, mode=mode)
            assert {hit["id"] for hit in found["hits"]} == expected
            page = await search(client, query, mode=mode, limit=2, offset=2, facets=["section"])
            assert page["hits"] == found["hits"][2:4]
            assert page["total"] == len(expected)
            assert {hit.id for hit in bundle.search(query, 100, mode=mode)} == expected
        for query in ("zzzqqqxxy", "fles"):  # no word is known
            assert (await search(client, query, mode=mode))["hits"] == []
            assert not len(bundle.search(query))


async def test_few_of_many_unknown_words_are_looked_up_in_live_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path, "m", floor=Floor(lexical=100.0, share=0.5, odds=10.0))
    looked_up = []
    find = OpenModel.unseen_features

    def count(model: OpenModel, word: str) -> list[int]:
        looked_up.append(word)
        return find(model, word)

    monkeypatch.setattr(OpenModel, "unseen_features", count)
    async with running(tmp_path) as client:
        written = await client.put("/v1/documents/new", json={"title": "zebra"})
        query = " ".join(f"q{i}" for i in range(400))
        found = await search(client, query, min_seq=written.json()["seq"])
        assert found["hits"] == []
        assert len(looked_up) < 200
        assert [hit["id"] for hit in (await search(client, f"zebra {query}"))["hits"]] == ["new"]


BY_WORDS = Floor(lexical=100.0, unseen=100.0, share=0.5, odds=10.0, per_word=0.5, common=1e9)


@pytest.mark.parametrize("mode", ["exact", "fast"])
async def test_a_word_of_the_query_is_evidence_whatever_it_weighs(
    tmp_path: Path, mode: str
) -> None:
    make_bundle(tmp_path, "m", n_dense=4, floor=BY_WORDS)
    texts = {one.id: " ".join(map(str, one.fields.values())).lower() for one in CORPUS}

    def having(*words: str) -> set[str]:
        return {id for id, text in texts.items() if any(word in text.split() for word in words)}

    async with running(tmp_path) as client:
        for query, expected in {
            "files": having("files"),
            "directory": having("directory"),
            "move ssh": having("move", "ssh"),
            "move zzzqqqxxy": having("move"),
            "direc": having("directory", "directories"),
            "zzzqqqxxy": set[str](),
        }.items():
            found = await search(client, query, mode=mode, facets=["section"])
            assert {hit["id"] for hit in found["hits"]} == expected, query
            assert found["total"] == len(expected)
            page = await search(client, query, mode=mode, limit=1, offset=1)
            assert page["hits"] == found["hits"][1:2]
            section = found["facets"]["section"]
            counted = sum(value["count"] for value in section["values"]) + section["missing"]
            assert counted == len(expected)


async def test_words_of_live_documents_and_synonyms_are_evidence(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", n_dense=4, floor=BY_WORDS)
    async with running(tmp_path) as client:
        document = {"title": "rsync", "text": "mirror directory"}
        seq = (await client.put("/v1/documents/new", json=document)).json()["seq"]
        for query, expected in {
            "mirror": {"new"},
            "mirr": {"new"},
            "rsync ssh": {"new", "linux/ssh", "linux/scp"},
            "directory": {"new", "ls"},
        }.items():
            found = await search(client, query, min_seq=seq)
            assert {hit["id"] for hit in found["hits"]} == expected, query
        rule = {"synonyms": [["folder", "directory"]]}
        assert (await client.put("/v1/rules/r", json=rule)).status_code == 200
        async with asyncio.timeout(10):
            while (found := await search(client, "folder"))["rules"] != ["r"]:
                await asyncio.sleep(0.02)
        assert {hit["id"] for hit in found["hits"]} == {"new", "ls"}


async def test_common_words_are_evidence_only_where_there_are_no_others(tmp_path: Path) -> None:
    bundle = open_bundle(find_bundle(tmp_path, make_bundle(tmp_path, "m", floor=BY_WORDS)))
    often, rare = (bundle.known_words.document_frequency(word) for word in ("files", "move"))
    assert often > rare
    floor = replace(BY_WORDS, common=(often + rare) / 2)
    make_bundle(tmp_path, "other", floor=floor)
    async with running(tmp_path, default_model="other") as client:
        assert (await search(client, "move files"))["total"] == 1
        assert (await search(client, "files"))["total"] > 3


async def test_a_document_without_a_word_needs_more_for_each_word(tmp_path: Path) -> None:
    floor = replace(BY_WORDS, lexical=0.6, unseen=0.6, common=0.0, per_word=1.0)
    bundle = open_bundle(find_bundle(tmp_path, make_bundle(tmp_path, "m", floor=floor)))
    found = bundle.analyzer.query("copy remote host zzzqqqxxy").floor
    assert found is not None
    assert found.lexical == pytest.approx(1.8)
    assert found.words == tuple(sorted(bundle.encode("copy remote host").sparse.indices.tolist()))
    long = bundle.analyzer.query("copy " * 33).floor
    assert long is not None
    assert (long.lexical, long.words) == (0.6, ())


async def test_a_filter_does_not_make_weak_words_evidence(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", floor=Floor(lexical=0.6))
    bundle = open_bundle(find_bundle(tmp_path, "m"))
    async with running(tmp_path) as client:
        found = await search(client, "rename files")
        assert [hit["id"] for hit in found["hits"]] == ["linux/mv"]
        without = {"not": {"section": 1}}
        assert (await search(client, "files", filter=without, min_score=0.0))["total"] > 1
        assert (await search(client, "rename files", filter=without))["hits"] == []
        assert (await search(client, "rename files", offset=1))["hits"] == []
        assert not len(bundle.search("rename files", filter=without))
