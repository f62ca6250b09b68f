"""Searches of a model with a second stage: pages, explanations, and which routes use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullrank.bundle import open_bundle
from tests.api.support import AUTH, CORPUS, Client, activate, make_bundle, running
from tests.reranking import stage_of

pytestmark = pytest.mark.anyio
DOCUMENTS = sorted(CORPUS, key=lambda document: document.id)


def write(root: Path, *, of_documents: bool = False) -> Path:
    stage = stage_of(DOCUMENTS, of_documents=of_documents, seed=2)
    return root / "staged" / make_bundle(root, "staged", n_dense=4, second_stage=stage)


def ids(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["id"] for hit in hits]


async def test_a_search_says_how_many_hits_were_reordered(tmp_path: Path) -> None:
    bundle = open_bundle(write(tmp_path))
    async with running(tmp_path) as client:
        found = await client.search("copy files")
        assert found["reordered"] == len(CORPUS)
        assert ids(found["hits"]) == [hit.id for hit in bundle.search("copy files")]
        scores = [hit["score"] for hit in found["hits"]]
        assert scores != sorted(scores, reverse=True)
        page = await client.search("copy files", limit=3, offset=2)
        assert ids(page["hits"]) == ids(found["hits"])[2:5]


async def test_an_explanation_splits_the_second_score_by_feature(tmp_path: Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as client:
        found = await client.search("copy files", explain=True)
    seconds = [hit["explanation"]["second_stage"] for hit in found["hits"]]
    for why in seconds:
        total = why["base"] + sum(feature["contribution"] for feature in why["features"])
        assert total == pytest.approx(why["score"])
    assert [w["score"] for w in seconds] == sorted((w["score"] for w in seconds), reverse=True)


async def test_a_live_document_is_reordered_too(tmp_path: Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as client:
        seq = await client.write("new", {"title": "copy", "text": "files"})
        found = await client.search("copy files", min_seq=seq, explain=True)
        assert found["reordered"] == len(CORPUS) + 1
        [new] = [hit for hit in found["hits"] if hit["id"] == "new"]
        assert new["explanation"]["second_stage"] is not None


async def test_documents_as_queries_use_a_stage_that_was_trained_on_them(tmp_path: Path) -> None:
    for of_documents in (False, True):
        root = tmp_path / str(of_documents)
        write(root, of_documents=of_documents)
        async with running(root) as client:
            similar = (await client.get("/v1/documents/ls/similar")).json()
            page = {"page": {"text": "copy files"}, "placements": [{"id": "a", "count": 3}]}
            matched = (await client.post("/v1/match", json=page)).json()
        assert similar["reordered"] == (len(CORPUS) - 1 if of_documents else 0)
        assert matched["reordered"] == (len(CORPUS) if of_documents else 0)


async def test_a_model_without_a_second_stage_reorders_nothing(reader: Client) -> None:
    found = await reader.search("copy files", explain=True)
    assert found["reordered"] == 0
    assert all(hit["explanation"]["second_stage"] is None for hit in found["hits"])


@pytest.mark.parametrize("active", ["plain", "staged"])
async def test_a_version_with_a_stage_is_tried_against_one_without(
    tmp_path: Path, active: str
) -> None:
    stage = stage_of(DOCUMENTS, seed=2)
    versions = {
        "plain": make_bundle(tmp_path, "plain", n_dense=4),
        "staged": make_bundle(tmp_path, "staged", n_dense=4, second_stage=stage),
    }
    [other] = versions.keys() - {active}
    async with running(tmp_path) as client:
        alone = {
            version: (await client.search("copy files", model=version, explain=True))["hits"]
            for version in versions.values()
        }
        assert (await activate(client, versions[active])).status_code == 200
        body = {"candidate": versions[other], "share": 1}
        begun = await client.put("/v1/experiments/default", json=body, headers=AUTH)
        assert begun.status_code == 200, begun.text
        replies = [
            await client.search("copy files", user_id=f"u{i}", explain=True) for i in range(12)
        ]
    orders = {version: ids(hits) for version, hits in alone.items()}
    assert orders[versions["plain"]] != orders[versions["staged"]]
    for reply in replies:
        assert (reply["model"], reply["candidate"]) == (versions[active], versions[other])
        assert reply["reordered"] == len(CORPUS)
        assert sorted(ids(reply["hits"])) == sorted(orders[versions[active]])
        for hit in reply["hits"]:
            assert hit in alone[versions["plain"]] or hit in alone[versions["staged"]]
    assert len({tuple(ids(reply["hits"])) for reply in replies}) > 1
