"""Search, match, similar: what comes back, and that it is the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import TypeAdapter

from fullrank.bundle import find_bundle, open_bundle
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.progress import Reporter
from fullrank.replies import MatchReply, SearchReply
from fullrank.retrieval import Floor, Retriever
from fullrank.storage.documents import Document
from fullrank_trainer.train import train
from tests.api.conftest import Root
from tests.api.support import CORPUS, Client, answer_of, make_bundle, ok, running
from tests.bundles import linear_model
from tests.planted import write_lines

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("model", ["bm25", "learned"])
@pytest.mark.parametrize("query", ["copy files", "remote host", "東京", "nothing known", "files"])
async def test_answers_equal_the_dense_brute_force(
    reader: Client, two_models: Root, model: str, query: str
) -> None:
    bundle = open_bundle(find_bundle(two_models.path, model))
    encoded = bundle.model.encode_queries([query])
    u, s = encoded.dense[0].astype(float), encoded.sparse.csr().toarray()[0].astype(float)
    documents = bundle.encoded.whole()
    scores = (
        documents.dense.astype(float) @ u
        + documents.sparse.csr().toarray().astype(float) @ s
        + documents.bias.astype(float)
    )
    expected = sorted(zip(-scores, bundle.documents.ids, strict=True))
    reply = await reader.search(query=query, model=model, limit=100)
    assert reply["certified"]
    assert reply["total"] == len(CORPUS)
    assert [hit["id"] for hit in reply["hits"]] == [id for _, id in expected]
    np.testing.assert_allclose(
        [hit["score"] for hit in reply["hits"]], [-score for score, _ in expected], atol=1e-12
    )


async def test_pages_of_an_answer_are_its_slices(reader: Client) -> None:
    whole = await reader.search(query="files", limit=100)
    part = await reader.search(query="files", limit=2, offset=3)
    assert part["hits"] == whole["hits"][3:5]
    assert (await reader.search(query="files", limit=2, offset=100))["hits"] == []


async def test_only_the_fields_asked_for_come_back(reader: Client) -> None:
    whole = (await reader.search(query="copy"))["hits"][0]
    assert whole["fields"].keys() >= {"title", "text"}
    some = (await reader.search(query="copy", fields=["title", "nowhere"]))["hits"][0]
    assert some["fields"] == {"title": whole["fields"]["title"]}
    assert (await reader.search(query="copy", fields=[]))["hits"][0]["fields"] == {}


async def test_the_parts_of_an_explanation_add_up(reader: Client) -> None:
    plain = await reader.search(query="copy remote files")
    reply = await reader.search(query="copy remote files", explain=True)
    assert all(hit["explanation"] is None for hit in plain["hits"])
    for hit in reply["hits"]:
        parts = hit["explanation"]
        assert parts["dense"] + parts["lexical"] + parts["bias"] == pytest.approx(hit["score"])
        for name in ("dense", "lexical"):
            words = sum(word[name] for word in parts["words"])
            assert words == pytest.approx(parts[name], abs=1e-5)
        assert {word["word"] for word in parts["words"]} <= {"copy", "remote", "files"}


async def test_a_model_is_named_by_alias_version_or_name(reader: Client, two_models: Root) -> None:
    for name, version in {
        "default": two_models.learned,
        "learned": two_models.learned,
        two_models.learned: two_models.learned,
        "bm25": two_models.bm25,
        two_models.bm25: two_models.bm25,
    }.items():
        assert (await reader.search(query="copy", model=name))["model"] == version


async def test_similar_documents_leave_the_document_itself_out(reader: Client) -> None:
    for id in ("linux/cp", "ls", "日本", "<b>&\"'"):
        reply = ok(await reader.get(f"/v1/documents/{httpx.URL(path=id).path}/similar"))
        TypeAdapter(SearchReply).validate_python(reply)
        assert id not in [hit["id"] for hit in reply["hits"]]
        assert reply["total"] == len(CORPUS) - 1
    response = await reader.get(
        "/v1/documents/linux/scp/similar?limit=1&fields=title&fields=section&model=bm25"
    )
    assert [hit["id"] for hit in response.json()["hits"]] == ["linux/ssh"]
    assert response.json()["hits"][0]["fields"] == {"title": "ssh", "section": 1}


@pytest.mark.parametrize("mode", ["exact", "fast"])
async def test_the_mode_asked_for_is_the_one_that_ranks(
    reader: Client, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    modes = []
    original = Retriever.search

    def noted(self: Retriever, *args: Any, **named: Any) -> Any:
        modes.append(named["mode"])
        return original(self, *args, **named)

    exact = await reader.search(query="copy files")
    monkeypatch.setattr(Retriever, "search", noted)
    reply = await reader.search(query="copy files", mode=mode)
    similar = await reader.get("/v1/documents/ls/similar", params={"mode": mode})
    assert similar.status_code == 200
    assert modes == [mode, mode]
    # So few documents are scored outright in either mode.
    assert answer_of(reply) == answer_of(exact)


async def test_match_fills_placements_without_repeating(reader: Client) -> None:
    body = {
        "page": {"title": "Backups", "text": "copy files to a remote host", "keywords": ["ssh"]},
        "placements": [{"id": "top", "count": 2}, {"id": "side"}, {"id": "foot", "count": 9}],
        "blocked_ids": ["linux/cp", "unknown"],
    }
    reply = ok(await reader.post("/v1/match", json=body))
    TypeAdapter(MatchReply).validate_python(reply)
    placed = [[hit["id"] for hit in place["hits"]] for place in reply["placements"]]
    assert [place["id"] for place in reply["placements"]] == ["top", "side", "foot"]
    assert [len(ids) for ids in placed] == [2, 1, len(CORPUS) - 4]
    ranked = [id for ids in placed for id in ids]
    assert len(set(ranked)) == len(ranked)
    assert "linux/cp" not in ranked
    scores = [hit["score"] for place in reply["placements"] for hit in place["hits"]]
    assert scores == sorted(scores, reverse=True)


async def test_the_same_question_gives_the_same_answer(reader: Client) -> None:
    first = await reader.search(query="Copy  FILES")
    for query in ("Copy  FILES", "copy files", "copy\nfiles"):
        assert answer_of(await reader.search(query=query)) == answer_of(first)


async def test_where_it_is_ranked_changes_nothing(root: Root) -> None:
    async with running(root.path, inline_ms=0) as client:
        on_threads = [await client.search(query=query) for query in ("copy files", "東京")]
    async with running(root.path, inline_ms=60_000) as client:
        # The first of its kind says how long they take.
        for _ in range(2):
            on_loop = [await client.search(query=query) for query in ("copy files", "東京")]
    assert list(map(answer_of, on_loop)) == list(map(answer_of, on_threads))


async def test_stored_fields_come_back_as_they_were_stored(tmp_path: Path) -> None:
    fields = {"title": "odd", "text": "numbers", "big": 2**80, "whole": 1.0, "more": {"a": [None]}}
    make_bundle(tmp_path, "odd", [Document("odd", fields)])
    async with running(tmp_path) as client:
        [hit] = (await client.search(query="odd", limit=1))["hits"]
    assert hit["fields"] == fields
    assert isinstance(hit["fields"]["whole"], float)


async def test_a_body_may_come_in_pieces(reader: Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in b'{"query": "copy files"}':
            yield bytes([byte])

    headers = {"Content-Type": "application/json; charset=utf-8"}
    response = await reader.post("/v1/search", content=pieces(), headers=headers)
    assert answer_of(response.json()) == answer_of(await reader.search(query="copy files"))


async def test_what_was_meant_is_named_and_nothing_is_replaced(reader: Client) -> None:
    async def reply(query: str) -> Any:
        return (await reader.post("/v1/search", json={"query": query, "model": "bm25"})).json()

    assert (await reply("copy files"))["did_you_mean"] is None
    typed, alone = await reply("cpoy files"), await reply("files")
    assert typed["did_you_mean"] == "copy files"
    assert [hit["score"] for hit in typed["hits"]] == [hit["score"] for hit in alone["hits"]]


async def test_the_word_that_fits_the_others_was_meant(tmp_path: Path) -> None:
    """Of two words one edit away; alone, the more frequent one is."""
    titles = ["desk lamp", "floor lamp", "night lamp", "wool of a lama", "wool sock"]
    lines = [{"_id": f"d{i}", "title": title} for i, title in enumerate(titles)]
    write_lines(tmp_path / "corpus.jsonl", lines)
    train(tmp_path, tmp_path / "b", "shop", recipe="bm25", reporter=Reporter(quiet=True))
    async with running(tmp_path / "b") as client:
        for query, meant in (
            ("lamr", "lamp"),
            ("wool lamr", "wool lama"),
            ("desk lamr", "desk lamp"),
        ):
            reply = (await client.post("/v1/search", json={"query": query})).json()
            assert reply["did_you_mean"] == meant


async def test_a_document_that_the_query_names_comes_first(tmp_path: Path) -> None:
    """By id, SKU or UPC in either case, in the bundle or live, if it passes the filter."""
    documents = [
        Document("LAMP-2041", {"title": "desk lamp", "text": "brass", "section": 1}),
        Document(
            "d2", {"title": "lamp 2041 shade", "text": "lamp", "section": 2, "SKU": "sh-77001"}
        ),
        Document("d3", {"title": "bulb", "text": "lamp", "section": 2, "upc": 885909123456}),
    ]
    make_bundle(tmp_path, "shop", documents)
    async with running(tmp_path, documents_poll_ms=5) as client:

        async def found(query: str, **asked: Any) -> tuple[list[str], int]:
            reply = await client.search(query, **asked)
            return [hit["id"] for hit in reply["hits"]], reply["total"]

        ids, total = await found("lamp-2041")
        # d3 is a lamp, but not 2041.
        assert (ids, total) == (["LAMP-2041", "d2"], 2)
        assert (await found("lamp-2041", match="any"))[1] == 3
        assert await found("885909123456") == (["d3"], 1)
        pages = [(await found("lamp-2041", limit=1, offset=offset))[0] for offset in range(4)]
        assert [id for page in pages for id in page] == ids
        assert (await found("SH-77001"))[0][0] == "d2"
        assert set((await found("885909123456, lamp-2041"))[0][:2]) == {"d3", "LAMP-2041"}
        ids, _ = await found("lamp-2041", filter={"section": 2})
        assert ids[0] == "d2"
        assert "LAMP-2041" not in ids
        ids, _ = await found("lamp-2041", sort=[{"field": "section", "order": "desc"}])
        assert ids[-1] == "LAMP-2041"
        bundle = open_bundle(find_bundle(tmp_path, "shop"))
        several = bundle.search("885909123456 lamp-2041", 2)
        assert {hit.id for hit in several} == {"d3", "LAMP-2041"}
        for query in ("lamp-2041", "SH-77001"):
            for offset in range(4):  # Python answers as HTTP does
                hits = bundle.search(query, 2, offset=offset)
                assert ([hit.id for hit in hits], hits.total) == await found(
                    query, limit=2, offset=offset
                )
        assert bundle.search("lamp-2041", exclude=["LAMP-2041"])[0].id == "d2"
        # d2 is replaced by a document with another SKU.
        fields = {"title": "shade", "text": "paper", "section": 2}
        await client.put("/v1/documents/d2", json={**fields, "sku": "sh-77002"})
        written = await client.put("/v1/documents/NEW-1234", json={**fields, "sku": "sh-77003"})
        seq = written.json()["seq"]
        assert (await found("SH-77002", min_seq=seq))[0][0] == "d2"
        assert (await found("new-1234", min_seq=seq))[0][0] == "NEW-1234"
        assert (await found("sh-77003", min_seq=seq))[0][0] == "NEW-1234"
        assert (await found("sh-77001", min_seq=seq))[0][0] != "d2"


async def test_a_filter_is_applied_before_named_documents_are_cut(tmp_path: Path) -> None:
    documents = [
        Document(f"d{i:02}", {"title": f"lamp {i}", "sku": "ab-1234", "size": i}) for i in range(14)
    ]
    make_bundle(tmp_path, "shop", documents, floor=Floor(lexical=0.1))
    bundle = open_bundle(find_bundle(tmp_path, "shop"))
    async with running(tmp_path) as client:
        for least, count in ((0, 10), (3, 10), (12, 2), (13, 1)):
            condition = {"size": {"gte": least}}
            found = await client.search(query="AB-1234", filter=condition, limit=20)
            ids = [hit["id"] for hit in found["hits"]]
            assert ids == [hit.id for hit in bundle.search("AB-1234", 20, filter=condition)]
            assert len(ids) == found["total"] == count
            assert min(hit["fields"]["size"] for hit in found["hits"]) >= least


async def test_named_documents_are_counted_as_they_are_ordered(tmp_path: Path) -> None:
    """Only in the order of the score does a query that names documents ask for all its words."""
    fields = [{"title": f"lamp {i}", "sku": "ab-1234", "size": i} for i in range(4)]
    fields += [{"title": "ab lamp", "size": i} for i in range(4, 7)]
    documents = [Document(f"d{i}", one) for i, one in enumerate(fields)]
    make_bundle(tmp_path, "shop", documents, floor=Floor(lexical=0.1))
    counted: dict[str, Any] = {"facets": ["size"], "facet_mode": "disjunctive"}
    orders: list[tuple[dict[str, Any], int]] = [({}, 4), ({"sort": [{"field": "size"}]}, 3)]
    async with running(tmp_path) as client:
        for order, count in orders:
            asked = {**counted, **order}
            whole = await client.search("AB-1234", **asked)
            found = await client.search("AB-1234", filter={"size": {"gte": 3}}, **asked)
            assert found["facets"] == whole["facets"]
            assert whole["total"] == whole["facets"]["size"]["distinct"] == count


async def test_documents_as_queries_have_weights_of_their_own(tmp_path: Path) -> None:
    """The same text ranks by one part when it is typed and by another as a document, cached or not."""

    def blend(model: LinearModel) -> MixedModel:
        other = linear_model(CORPUS, n_dense=4, seed=2)
        return MixedModel([model, other], [1.0, 0.0], document_weights=[0.0, 0.5])

    version = make_bundle(tmp_path, "blend", wrap=blend, floor=Floor(lexical=1e6))
    bundle = open_bundle(tmp_path / "blend" / version)
    text = bundle.model.query_text(bundle.documents.fields(bundle.documents.row("linux/mv")))
    found = {}
    for model in (bundle.model, bundle.model.for_documents):
        scores = Retriever(bundle.encoded.whole()).scores(model.encode_queries([text]))[0]
        found[model is bundle.model] = dict(zip(bundle.documents.ids, scores.tolist(), strict=True))
    async with running(tmp_path) as client:
        for _ in range(2):
            typed = await client.search(query=text, min_score=-100, limit=100)
            response = await client.get("/v1/documents/linux/mv/similar?limit=100")
            page = {
                "page": {"text": text},
                "placements": [{"id": "a", "count": 7}],
                "explain": True,
            }
            matched = (await client.post("/v1/match", json=page)).json()["placements"][0]["hits"]
            for hits, wanted in (
                (typed["hits"], found[True]),
                (response.json()["hits"], found[False]),
                (matched, found[False]),
            ):
                assert len(hits) >= len(CORPUS) - 1
                for hit in hits:
                    assert hit["score"] == pytest.approx(wanted[hit["id"]], abs=1e-5)
        for hit in matched:
            shares = hit["explanation"]["words"]
            assert sum(one["dense"] + one["lexical"] for one in shares) == pytest.approx(
                hit["score"], abs=1e-4
            )
