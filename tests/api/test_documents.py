"""Live documents over HTTP: written, seen, replaced, deleted; keys, caps, restarts."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from fullrank.cli import build_app
from fullrank_service.documents.sqlitelog import FILE, LogPlace, SqliteLog
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, at, make_bundle, running

pytestmark = pytest.mark.anyio

NDJSON = {"Content-Type": "application/x-ndjson"}
NEW = {"title": "rsync", "text": "Synchronise folders with a distant computer", "section": 1}


async def ids(client: Client, query: str, **body: Any) -> list[str]:
    """Every document, best first."""
    reply = await client.search(query, **{"limit": 100, **body})
    return [hit["id"] for hit in reply["hits"]]


async def put(client: Client, id: str, fields: Any = NEW, **headers: str) -> httpx.Response:
    return await client.put(f"/v1/documents/{id}", json=fields, headers=headers)


async def bulk(client: Client, *lines: Any, **headers: str) -> httpx.Response:
    body = "".join(json.dumps(line) + "\n" for line in lines)
    return await client.post("/v1/documents:bulk", content=body, headers=NDJSON | headers)


def verdicts(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def slug(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].rpartition(":")[2]


async def test_a_document_is_written_found_replaced_and_deleted(client: Client) -> None:
    reply = (await put(client, "new/rsync")).json()
    assert reply == {"id": "new/rsync", "collection": "learned", "seq": 1}
    assert "new/rsync" in await ids(client, "synchronise", min_seq=1)
    assert "new/rsync" in await ids(client, "copy", filter={"section": 1})
    assert "new/rsync" not in await ids(client, "copy", filter={"section": {"exists": False}})

    reply = (await put(client, "new/rsync", {"title": "x", "text": "entirely different"})).json()
    assert reply["seq"] == 2
    assert "new/rsync" not in await ids(client, "copy", filter={"section": 1}, min_seq=2)
    found = await client.get("/v1/documents/new/rsync", params={"min_seq": 2})
    assert found.json()["fields"] == {"title": "x", "text": "entirely different"}

    response = await client.delete("/v1/documents/new/rsync")
    assert response.json()["seq"] == 3
    assert response.headers["X-Seq"] == "3"
    assert "new/rsync" not in await ids(client, "entirely", min_seq=3)
    assert slug(await client.get("/v1/documents/new/rsync")) == (404, "document-not-found")


async def test_documents_of_the_bundle_can_be_replaced_and_deleted(client: Client) -> None:
    await put(client, "linux/cp", {"title": "cp", "text": "nothing of the kind"})
    seq = (await client.delete("/v1/documents/linux/scp")).json()["seq"]
    found = (await client.post("/v1/search", json={"query": "x", "min_seq": seq})).json()
    assert found["total"] == len(found["hits"]) == 6
    fields = {hit["id"]: hit["fields"] for hit in found["hits"]}
    assert fields["linux/cp"] == {"title": "cp", "text": "nothing of the kind"}
    assert slug(await client.get("/v1/documents/linux/scp")) == (404, "document-not-found")
    similar = await client.get("/v1/documents/linux/cp/similar", params={"min_seq": seq})
    assert "linux/scp" not in [hit["id"] for hit in similar.json()["hits"]]


async def test_a_bulk_request_has_a_verdict_for_every_line(client: Client) -> None:
    response = await bulk(
        client,
        {"_id": "a", **NEW},
        {"_id": "b", "title": 7},
        {"_id": "linux/cp", "_delete": True},
        ["no document"],
        {"_id": "a", "title": "again", "text": "synchronise once more"},
    )
    assert response.headers["X-Seq"] == "3"
    found = verdicts(response)
    assert [(v["line"], v["id"], v["status"], v.get("seq")) for v in found] == [
        (1, "a", 200, 1),
        (2, "b", 422, None),
        (3, "linux/cp", 200, 2),
        (4, None, 422, None),
        (5, "a", 200, 3),
    ]
    assert "title" in found[1]["error"]
    listed = await ids(client, "synchronise files", min_seq=3)
    assert listed.count("a") == 1
    assert "linux/cp" not in listed


async def test_a_bulk_request_without_a_valid_line_writes_nothing(
    client: Client, root: Root
) -> None:
    response = await bulk(client, {"title": "no id"})
    assert [v["status"] for v in verdicts(response)] == [422]
    assert not (root.path / FILE).exists()


async def test_a_retry_with_the_same_key_changes_nothing(client: Client) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await bulk(client, {"_id": "a", **NEW}, {"title": "no id"}, **key)
    await put(client, "a", {"title": "newer"})
    again = await bulk(client, {"_id": "a", **NEW}, {"title": "no id"}, **key)
    assert again.content == first.content
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Seq"] == first.headers["X-Seq"] == "1"
    found = await client.get("/v1/documents/a", params={"min_seq": 2})
    assert found.json()["fields"] == {"title": "newer"}

    assert slug(await bulk(client, {"_id": "b"}, **key)) == (422, "idempotency-key-reused")
    # The same fields for another document, or another deed, are another request.
    key = {"Idempotency-Key": "k-2"}
    await put(client, "a", NEW, **key)
    assert slug(await put(client, "b", NEW, **key)) == (422, "idempotency-key-reused")
    response = await client.delete("/v1/documents/a", headers=key)
    assert slug(response) == (422, "idempotency-key-reused")


async def test_a_retry_is_answered_from_its_key_even_if_it_would_be_refused_now(
    client: Client,
) -> None:
    """The write was accepted. When it is retried, filters use its field, and a new write would be refused."""
    odd = {"title": "x", "colour": {"red": 1}}

    async def send() -> list[httpx.Response]:
        return [
            await put(client, "a", odd, **{"Idempotency-Key": "k-1"}),
            await bulk(client, {"_id": "b", **odd}, **{"Idempotency-Key": "k-2"}),
        ]

    first = await send()
    assert [reply.status_code for reply in first] == [200, 200]
    lines = [
        {"_id": "a", "_delete": True},
        {"_id": "b", "_delete": True},
        {"_id": "c", "title": "x", "colour": 1},
    ]
    await bulk(client, *lines)
    assert await ids(client, "x", filter={"colour": 1}, min_seq=5) == ["c"]
    assert slug(await put(client, "a", odd)) == (409, "document-not-accepted")
    assert slug(await put(client, "a", odd, **{"Idempotency-Key": "k-3"})) == (
        409,
        "document-not-accepted",
    )
    again = await send()
    assert [reply.content for reply in again] == [reply.content for reply in first]
    assert {reply.headers["Idempotent-Replayed"] for reply in again} == {"true"}
    # A refusal is not kept: the key is free.
    fine = await put(client, "d", **{"Idempotency-Key": "k-3"})
    assert fine.json()["seq"] == 6


async def test_concurrent_requests_with_one_key_are_stored_once(client: Client) -> None:
    replies = await asyncio.gather(
        *(put(client, "a", NEW, **{"Idempotency-Key": "k"}) for _ in range(8))
    )
    assert {reply.json()["seq"] for reply in replies} == {1}


@pytest.mark.parametrize("key", ["", "two words", "ä", "x" * 129])
async def test_an_invalid_key_is_refused(reader: Client, key: str) -> None:
    response = await reader.put(
        "/v1/documents/a", json=NEW, headers=[(b"Idempotency-Key", key.encode())]
    )
    assert slug(response) == (422, "invalid")


@pytest.mark.parametrize(
    ("id", "body", "field", "reason"),
    [
        ("a", b"[]", "body", "is not a JSON object"),
        ("a", b'{"title": 5}', "body.title", "is not text"),
        ("a", b'{"_id": "b"}', "_id", "is not the id in the path"),
        ("a", b'{"n": 1, "n": 2}', "body", "holds the key 'n' twice in one object"),
        ("%20", b"{}", "_id", "is empty"),
        ("a%00", b"{}", "_id", "holds a control character"),
        ("x" * 513, b"{}", "_id", "has more than 512 characters"),
        ("caf%E9", b"{}", "_id", "is not UTF-8"),
    ],
)
async def test_an_invalid_document_is_refused_with_field_and_reason(
    reader: Client, id: str, body: bytes, field: str, reason: str
) -> None:
    response = await reader.put(
        f"/v1/documents/{id}", content=body, headers={"Content-Type": "application/json"}
    )
    assert slug(response) == (422, "invalid")
    assert response.json()["errors"] == [{"field": field, "reason": reason}]


@pytest.mark.parametrize("path", ["caf%E9", "caf%E9/similar"])
async def test_no_other_document_answers_for_an_id_that_is_not_utf_8(
    client: Client, path: str
) -> None:
    assert (await put(client, "caf\ufffd", NEW)).status_code == 200
    response = await client.get(f"/v1/documents/{path}")
    assert slug(response) == (422, "invalid")
    assert response.json()["errors"] == [{"field": "_id", "reason": "is not UTF-8"}]


async def test_a_line_that_does_not_fit_a_field_has_its_own_verdict(client: Client) -> None:
    """The other lines are stored, as they are if one is not a document."""
    response = await bulk(
        client,
        {"_id": "a", **NEW},
        {"_id": "b", **NEW, "section": {"x": 1}},
        {"_id": "c", "text": "copy"},
    )
    first, second, third = verdicts(response)
    assert (first["status"], second["status"], third["status"]) == (200, 422, 200)
    assert "section" in second["error"]
    assert not second["error"].endswith(".")
    alone = await put(client, "b", {**NEW, "section": {"x": 1}})
    assert slug(alone) == (409, "document-not-accepted")
    assert alone.json()["detail"] == f"{second['error']}."


async def test_the_last_line_needs_no_newline(root: Root) -> None:
    lines = b"\n".join(b'{"_id": "%c", "text": "copy"}' % id for id in b"abc")
    async with running(root.path, max_bulk_lines=2) as client:
        response = await client.post("/v1/documents:bulk", content=lines, headers=NDJSON)
        assert slug(response) == (413, "too-large")
        response = await client.post(
            "/v1/documents:bulk", content=lines[: lines.rindex(b"\n")], headers=NDJSON
        )
        assert [v["status"] for v in verdicts(response)] == [200, 200]


async def test_a_bulk_request_may_be_larger_than_others(root: Root) -> None:
    lines = [{"_id": f"{i}", "text": "copy " * 1000} for i in range(10)]
    async with running(root.path, max_body_bytes=20_000, max_bulk_bytes=60_000) as client:
        assert [v["status"] for v in verdicts(await bulk(client, *lines))] == [200] * 10
        assert slug(await bulk(client, *lines, *lines)) == (413, "too-large")
        assert slug(await put(client, "a", {"text": "x" * 20_000})) == (413, "too-large")


async def test_writes_above_the_caps_are_refused(root: Root) -> None:
    caps = {"max_document_bytes": 1024, "max_bulk_lines": 3, "max_live_documents": 4}
    async with running(root.path, **caps) as client:
        assert slug(await put(client, "a", {"text": "x" * 1024})) == (413, "too-large")
        assert slug(await bulk(client, *({"_id": f"{i}", "text": "copy"} for i in range(4)))) == (
            413,
            "too-large",
        )
        [verdict] = verdicts(await bulk(client, {"_id": "a", "text": "x" * 1024}))
        assert verdict["error"] == "is larger than 1024 bytes"
        assert (
            await bulk(client, *({"_id": f"{i}", "text": "copy"} for i in range(3)))
        ).status_code == 200
        response = await bulk(client, *({"_id": f"{i}", "text": "copy"} for i in range(3, 6)))
        assert slug(response) == (507, "too-many-documents")
        assert "compact" in response.json()["detail"]
        assert "Retry-After" in response.headers
        assert (await put(client, "3")).status_code == 200


async def test_new_words_count_against_the_cap_of_memory(root: Root) -> None:
    """400 kB of documents take more than a megabyte, because no word occurs twice."""
    words = iter(f"word{i}" for i in range(50_000))
    lines = [{"_id": f"{i}", "text": " ".join(islice(words, 1250))} for i in range(40)]
    async with running(root.path, max_live_mb=1) as client:
        assert slug(await bulk(client, *lines)) == (507, "too-many-documents")
        reply = await bulk(client, *({**line, "text": "word " * 1250} for line in lines))
        assert reply.status_code == 200
        assert reply.headers["X-Seq"] == "40"  # nothing was stored before


async def test_a_document_is_deleted_from_the_log_without_the_service(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs")
    runner, where = CliRunner(), ["--bundles", str(tmp_path)]
    missing = runner.invoke(build_app(), ["documents", "list", *where])
    assert "no live document was ever written" in str(missing.exception)
    async with running(tmp_path) as client:
        for id, text in (("small", "few words"), ("large", "many " * 99), ("ls", "replaced")):
            assert (await put(client, id, {"text": text})).status_code == 200
    found = json.loads(runner.invoke(build_app(), ["documents", "list", *where, "--json"]).stdout)
    assert (found[0]["seq"], found[0]["collection"], found[0]["id"]) == (2, "docs", "large")
    assert found[0]["bytes"] > 500
    done = runner.invoke(build_app(), ["documents", "delete", "docs", "large", *where])
    assert done.stdout == "operation 4 deletes large\n"
    again = runner.invoke(build_app(), ["documents", "delete", "docs", "large", *where])
    assert "no such document" in str(again.exception)
    async with running(tmp_path) as client:
        assert (await client.get("/v1/documents/large")).status_code == 404
        assert (await client.get("/v1/documents/small?min_seq=4")).status_code == 200


async def test_a_document_that_no_search_can_find_is_refused(client: Client) -> None:
    """Without any text in the fields that the model reads."""
    for fields in ({}, {"title": "", "text": " \n"}, {"text": None}, {"section": 1}):
        response = await put(client, "a", fields)
        assert slug(response) == (409, "document-not-accepted")
        assert "fill one of the fields 'text', 'title'" in response.json()["detail"]
    lines = [{"_id": "a", "section": 1}, {"_id": "b", "text": "copy"}]
    refused, accepted = verdicts(await bulk(client, *lines))
    assert (refused["status"], accepted["status"]) == (422, 200)
    assert "No text to search for" in refused["error"]


async def test_a_field_of_numbers_refuses_text(client: Client) -> None:
    """One text among them would take the field from numeric filters and facets."""
    for value in ("2001", True, [1, "2"]):
        response = await put(client, "a", {"text": "copy", "section": value})
        assert slug(response) == (409, "document-not-accepted")
        assert "'section' holds only numbers" in response.json()["detail"]
    [verdict] = verdicts(await bulk(client, {"_id": "a", "text": "copy", "section": "2001"}))
    assert verdict["status"] == 422
    assert "'section' holds only numbers" in verdict["error"]
    for numbers in (2001, [1, 2.5], None, []):
        assert (await put(client, "a", {"text": "copy", "section": numbers})).status_code == 200


async def test_a_wrong_media_type_is_refused(reader: Client) -> None:
    for path, given in (("/v1/documents/a", NDJSON), ("/v1/documents:bulk", {})):
        method = "PUT" if path.endswith("/a") else "POST"
        response = await reader.request(method, path, content=b"{}", headers=given)
        assert slug(response) == (415, "unsupported-media-type")


async def test_a_sequence_number_that_was_never_assigned_is_refused_at_once(client: Client) -> None:
    body = {"query": "copy", "min_seq": 1}
    for _ in range(2):
        assert slug(await client.post("/v1/search", json=body)) == (422, "invalid")
        await put(client, "a")
        body["min_seq"] = 2**62


async def test_a_write_that_is_not_visible_in_time_is_a_503(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root.path, min_seq_wait_ms=60_000) as client:
        await put(client, "a")
        assert await ids(client, "copy", min_seq=1)
        app = client.app
        monkeypatch.setattr(app.state.documents, "_wait_s", 0.05)
        monkeypatch.setattr("fullrank_service.documents.follow.Tail._follow", lambda self: None)
        await put(client, "b")
        response = await client.post("/v1/search", json={"query": "copy", "min_seq": 2})
        assert slug(response) == (503, "not-yet-visible")
        assert response.headers["Retry-After"] == "1"
        # A request without min_seq is answered.
        assert await ids(client, "copy", min_seq=1)


async def test_collections_do_not_share_documents(client: Client, root: Root) -> None:
    response = await client.put("/v1/documents/a", params={"model": "bm25"}, json=NEW)
    assert response.json() == {"id": "a", "collection": "bm25", "seq": 1}
    assert "a" in await ids(client, "synchronise", model="bm25", min_seq=1)
    assert "a" not in await ids(client, "synchronise", min_seq=1)
    response = await client.put("/v1/documents/a", params={"model": "nobody"}, json=NEW)
    assert slug(response) == (404, "model-not-found")


async def test_a_restart_and_a_new_version_have_all_documents(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs", n_dense=8, created=at(1))
    async with running(tmp_path) as client:
        await bulk(client, {"_id": "a", **NEW}, {"_id": "linux/cp", "_delete": True})
    second = make_bundle(tmp_path, "docs", n_dense=4, seed=2, created=at(2))
    async with running(tmp_path, preload=False) as client:
        reply = (await client.get("/v1/models", headers=AUTH)).json()
        assert reply["aliases"]["default"] == second
        found = await ids(client, "synchronise files")
        assert "a" in found
        assert "linux/cp" not in found


async def test_a_swap_to_a_version_has_all_documents_from_its_first_answer(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    async with running(tmp_path) as client:
        await put(client, "a")
        second = make_bundle(tmp_path, "docs", n_dense=4, created=at(2))
        swap = asyncio.create_task(
            client.put("/v1/models/aliases/default", json={"version": second}, headers=AUTH)
        )
        answered_by = set()
        while not swap.done() or second not in answered_by:
            response = await client.post(
                "/v1/search", json={"query": "synchronise", "min_seq": 1, "limit": 100}
            )
            answered_by.add(response.json()["model"])
            assert "a" in [hit["id"] for hit in response.json()["hits"]]
            assert not swap.done() or swap.result().status_code == 200, swap.result().text
            # Without a socket between them nothing here waits, and the swap would get no turn.
            await asyncio.sleep(0)


async def test_a_service_whose_log_cannot_be_read_is_not_ready(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    async with running(tmp_path) as client:
        assert (await client.get("/readyz")).status_code == 503
        models = (await client.get("/v1/models", headers=AUTH)).json()
        assert "live documents cannot be read" in models["failure"]


async def test_reads_go_on_while_writes_fail(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    open_log = LogPlace.open

    def open_full(self: LogPlace) -> SqliteLog:
        log = open_log(self)
        assert isinstance(log, SqliteLog)
        log.connection.execute("PRAGMA max_page_count = 1")  # no more pages than it has
        return log

    async with running(root.path) as client:
        monkeypatch.setattr(LogPlace, "open", open_full)
        assert (await put(client, "a")).status_code == 200
        response = await put(client, "b", {"text": "x" * 200_000})
        assert slug(response) == (507, "storage-full")
        assert "Retry-After" in response.headers
        assert "a" in await ids(client, "synchronise", min_seq=1)
        monkeypatch.setattr(LogPlace, "open", open_log)
        # After a failure the worker opens a new connection, and this one has room.
        assert (await put(client, "b")).json()["seq"] == 2


async def test_no_write_is_acknowledged_after_the_folder_of_the_log_was_deleted(
    root: Root, tmp_path: Path
) -> None:
    """The folder of a running service is deleted, then created again without the log."""
    folder = tmp_path / "log"
    folder.mkdir()
    # A log of events would put its own files into the new folder.
    async with running(root.path, documents=folder / FILE, events=False) as client:
        assert (await put(client, "a")).json()["seq"] == 1
        assert "a" in await ids(client, "synchronise", min_seq=1)
        shutil.rmtree(folder)
        for _ in range(2):
            response = await put(client, "b")
            assert slug(response) == (503, "log-unavailable")
            assert "Retry-After" in response.headers
        folder.mkdir()
        assert slug(await put(client, "b")) == (503, "log-unavailable")
        assert list(folder.iterdir()) == []
        # Searches go on, with every acknowledged document and no other.
        found = await ids(client, "synchronise")
        assert "a" in found
        assert "b" not in found
    async with running(root.path, documents=folder / FILE) as client:
        assert (await put(client, "b")).json()["seq"] == 1
