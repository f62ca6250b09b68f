"""Highlights over HTTP: the spans are those of the library, in the snippet that came."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.search.highlight import Highlight, highlights
from tests.api.conftest import Root
from tests.api.support import CORPUS, Client, rules_applied, running

pytestmark = pytest.mark.anyio


async def search(client: Client, **body: Any) -> list[dict[str, Any]]:
    return list((await client.search(**body))["hits"])


@pytest.mark.parametrize("query", ["copy files", "東京", "nothing known"])
async def test_each_hit_has_the_snippets_of_the_library(
    reader: Client, two_models: Root, query: str
) -> None:
    model = open_bundle(find_bundle(two_models.path, "learned")).model
    fields = {document.id: document.fields for document in CORPUS}
    hits = await search(reader, query=query, highlight={"fields": ["title", "text"], "words": 3})
    ids = [hit["id"] for hit in hits]
    documents = [fields[id] for id in ids]
    encoded = model.encode_documents(
        [{name: str(value) for name, value in document.items()} for document in documents]
    )
    asked = Highlight(["title", "text"], 3)
    expected = highlights(model, query, model.encode_queries([query]), documents, encoded, asked)
    for hit, snippets in zip(hits, expected, strict=True):
        assert hit["highlight"] == {
            name: {"snippet": found.text, "spans": [list(span) for span in found.spans]}
            for name, found in snippets.items()
        }


async def test_hits_without_a_request_have_no_highlight(reader: Client) -> None:
    assert [hit["highlight"] for hit in await search(reader, query="copy")] == [None] * len(CORPUS)


async def test_only_tags_of_the_request_are_html(reader: Client) -> None:
    asked = {"fields": ["title", "text"], "pre": "<em>", "post": "</em>"}
    hits = await search(reader, query="markup files", model="bm25", highlight=asked)
    [marked] = [hit["highlight"] for hit in hits if hit["id"].startswith("<b>")]
    assert marked["text"]["snippet"] == "&lt;img src=x&gt; <em>markup</em> <em>files</em>"
    assert "<script>" not in marked["title"]["snippet"]
    [fields] = [document.fields for document in CORPUS if document.id.startswith("<b>")]
    for name, found in marked.items():
        plain = found["snippet"].replace("<em>", "").replace("</em>", "")
        assert unescape(plain) == fields[name]
        for start, stop, _ in found["spans"]:
            assert found["snippet"][:start].endswith("<em>")
            assert found["snippet"][stop:].startswith("</em>")


async def test_live_documents_are_highlighted(root: Root) -> None:
    async with running(root.path) as client:
        text = "A gnomon casts the shadow of a sundial"
        put = await client.put("/v1/documents/sundial", json={"title": "sundial", "text": text})
        hits = await search(
            client, query="gnomon", limit=1, min_seq=put.json()["seq"],
            highlight={"fields": ["text"]},
        )  # fmt: skip
    assert hits[0]["highlight"]["text"]["snippet"] == text
    assert [2, 8, "word"] in hits[0]["highlight"]["text"]["spans"]


@pytest.mark.parametrize(
    ("asked", "field", "reason"),
    [
        ({"fields": ["nowhere"]}, "highlight.fields.0", "known fields: section, text, title"),
        ({"fields": ["text", "section"]}, "highlight.fields.1", "holds no text"),
        ({"fields": []}, "body.highlight.fields", "at least 1"),
        ({"fields": ["text"], "words": 0}, "body.highlight.words", "greater than or equal to 1"),
        ({"fields": ["text"], "pre": "<b>"}, "body.highlight.post", "give both pre and post"),
        ({"fields": ["text"], "tags": True}, "body.highlight.tags", "fields, words, pre, post"),
    ],
)
async def test_what_cannot_be_highlighted_is_named(
    reader: Client, asked: dict[str, Any], field: str, reason: str
) -> None:
    response = await reader.post("/v1/search", json={"query": "copy", "highlight": asked})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["field"] == field
    assert reason in error["reason"]


async def test_completions_and_synonyms_are_words_of_the_query(root: Root) -> None:
    """Nothing is learned by BM25, so it marks nothing by meaning."""
    rule = {"query": {"is": "duplicate files"}, "synonyms": [["duplicate", "copy"]]}
    async with running(root.path) as client:
        put = await client.put("/v1/rules/s", json=rule, params={"model": "bm25"})
        assert put.status_code == 200
        await rules_applied(client, "bm25", ["s"])
        asked = [("list direc", "ls", "directory"), ("duplicate files", "linux/cp", "Copy")]
        for query, id, word in asked:
            hits = await search(client, query=query, model="bm25", highlight={"fields": ["text"]})
            [marked] = [hit["highlight"]["text"] for hit in hits if hit["id"] == id]
            kinds = {marked["snippet"][a:b]: kind for a, b, kind in marked["spans"]}
            assert kinds[word] == "word"
            assert {*kinds.values()} == {"word"}
