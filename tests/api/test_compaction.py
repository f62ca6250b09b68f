"""Live documents compacted into a new version: all are there once, and only later operations are replayed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

from fullrank.bundle import find_bundle, log_position_of, open_bundle, read_manifest, verify_bundle
from fullrank.cli import build_app
from fullrank.errors import BundleError
from fullrank_service.documents.compact import NothingToCompact, compact, trim
from fullrank_service.documents.follow import replayed
from fullrank_service.documents.sqlitelog import FILE, LogPlace, SqliteLog
from fullrank_service.models.state import read_state
from tests.api.support import AUTH, CORPUS, Client, answer_of, at, make_bundle, ok, running

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_made_up_words")]
NEW = {"title": "rsync", "text": "Synchronise folders with a distant computer", "section": 1}


async def write_some(client: Client) -> None:
    assert (await client.put("/v1/documents/a/new", json=NEW)).status_code == 200
    replaced = {"title": "mv", "text": "rename, synchronise"}
    assert (await client.put("/v1/documents/linux/mv", json=replaced)).status_code == 200
    assert (await client.delete("/v1/documents/linux/scp")).status_code == 200


async def answers(client: Client) -> list[Any]:
    bodies: list[dict[str, Any]] = [
        {"query": "synchronise files"},
        {"query": "rename a distant computer", "facets": ["section"], "explain": True},
        {"query": "copy", "filter": {"section": 1}},
        {"query": "distant compu", "explain": True},
    ]
    found = []
    for body in bodies:
        reply = answer_of(await client.search(**{"limit": 100, **body}))
        found.append({key: reply[key] for key in ("hits", "total", "facets")})
    return found


@pytest.mark.parametrize("n_dense", [0, 8])
async def test_the_compacted_version_answers_as_bundle_and_log_did(
    tmp_path: Path, n_dense: int
) -> None:
    make_bundle(tmp_path, "docs", n_dense=n_dense, created=at(1))
    async with running(tmp_path) as client:
        await write_some(client)
        await client.post("/v1/search", json={"query": "x", "min_seq": 3})
        before = await answers(client)
    path = find_bundle(tmp_path, "docs")
    made = compact(path, LogPlace.of_file(tmp_path / FILE))
    assert (made.documents, made.before, made.seq) == (len(CORPUS), len(CORPUS), 3)
    verify_bundle(made.path)
    assert {"computer", "synchronise"} <= {*open_bundle(made.path).new_words}
    log = SqliteLog(tmp_path / FILE)
    position = read_manifest(made.path).log_position
    assert position is not None
    assert (position.log, position.seq) == (log.id, 3)
    followed = replayed(open_bundle(made.path), log)
    log.close()
    assert (followed.seq, followed.view.added) == (3, ())
    async with running(tmp_path) as client:
        reply = (await client.get("/v1/models")).json()
        assert reply["aliases"]["default"] == made.path.name
        assert await answers(client) == before


async def test_writes_after_a_compaction_are_replayed_onto_it(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs", n_dense=8, created=at(1))
    async with running(tmp_path) as client:
        await write_some(client)
        first = compact(find_bundle(tmp_path, "docs"), LogPlace.of_file(tmp_path / FILE))
        # Compacted documents can be replaced and deleted like any others.
        await client.put("/v1/documents/a/new", json={"title": "again", "text": "copy"})
        await client.delete("/v1/documents/linux/mv")
        body = {"version": first.path.name}
        swap = await client.put("/v1/models/aliases/default", json=body, headers=AUTH)
        assert swap.status_code == 200
        reply = await client.post("/v1/search", json={"query": "copy", "min_seq": 5, "limit": 100})
        assert reply.json()["model"] == first.path.name
        ids = [hit["id"] for hit in reply.json()["hits"]]
        assert len(ids) == len(CORPUS) - 1
        assert {"linux/mv", "linux/scp"}.isdisjoint(ids)
        found = await client.get("/v1/documents/a/new")
        assert found.json()["fields"] == {"title": "again", "text": "copy"}
    second = compact(first.path, LogPlace.of_file(tmp_path / FILE))
    assert (second.seq, second.documents) == (5, len(CORPUS) - 1)
    verify_bundle(second.path)


async def test_compaction_makes_room_below_the_caps(tmp_path: Path) -> None:
    """The log still holds it, for the older version on disk; it counts no more."""
    make_bundle(tmp_path, "docs", n_dense=8, created=at(1))

    async def write(client: Client, *ids: str) -> list[int]:
        return [(await client.put(f"/v1/documents/{id}", json=NEW)).status_code for id in ids]

    async with running(tmp_path, max_live_documents=3) as client:
        assert await write(client, "a", "b", "c", "d") == [200, 200, 200, 507]
    compact(find_bundle(tmp_path, "docs"), LogPlace.of_file(tmp_path / FILE))
    async with running(tmp_path, max_live_documents=3) as client:
        assert await write(client, "d", "e", "f", "g") == [200, 200, 200, 507]


async def test_compacting_nothing_is_an_error_with_the_reason(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    path = find_bundle(tmp_path, "docs")
    with pytest.raises(NothingToCompact, match="no live document was ever written"):
        compact(path, LogPlace.of_file(tmp_path / FILE))
    async with running(tmp_path) as client:
        await write_some(client)
    made = compact(path, LogPlace.of_file(tmp_path / FILE))
    with pytest.raises(NothingToCompact, match="contains every operation of the log"):
        compact(made.path, LogPlace.of_file(tmp_path / FILE))


async def test_operations_are_removed_when_every_version_contains_them_and_other_versions_are_refused(
    tmp_path: Path,
) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    old = find_bundle(tmp_path, "docs")
    async with running(tmp_path) as client:
        await write_some(client)
    made = compact(old, LogPlace.of_file(tmp_path / FILE))
    assert trim(tmp_path, "docs", LogPlace.of_file(tmp_path / FILE), 0) == 0, (
        "the old version needs them"
    )
    elsewhere = old.rename(tmp_path.with_name("aside"))
    assert trim(tmp_path, "docs", LogPlace.of_file(tmp_path / FILE), 3600) == 0, (
        "a worker may not have read them"
    )
    assert trim(tmp_path, "docs", LogPlace.of_file(tmp_path / FILE), -1) == 3
    log = SqliteLog(tmp_path / FILE)
    assert replayed(open_bundle(made.path), log).seq == 3
    with pytest.raises(BundleError, match="the log no longer has those"):
        replayed(open_bundle(elsewhere), log)
    log.close()
    elsewhere.rename(old)
    async with running(tmp_path) as client:
        swap = await client.put(
            "/v1/models/aliases/default", json={"version": old.name}, headers=AUTH
        )
        assert swap.status_code == 409
        assert "the log no longer has those" in swap.json()["detail"]
        assert (await client.get("/readyz")).json()["model"] == made.path.name


@pytest.mark.parametrize("command", ["train", "index"])
async def test_a_bundle_trained_on_an_export_follows_the_log(tmp_path: Path, command: str) -> None:
    root, collection = tmp_path / "bundles", tmp_path / "collection"
    make_bundle(root, "docs", created=at(1))
    old = find_bundle(root, "docs")
    async with running(root) as client:
        await write_some(client)
    made = compact(old, LogPlace.of_file(root / FILE))
    shutil.rmtree(old)
    assert trim(root, "docs", LogPlace.of_file(root / FILE), -1) == 3
    collection.mkdir()

    def run_json(*words: str | Path) -> dict[str, Any]:
        done = CliRunner().invoke(build_app(), [*map(str, words), "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    corpus = collection / "corpus.jsonl"
    exported = run_json("bundles", "export", root / "docs", corpus)
    assert exported["documents"] == made.documents
    store = open_bundle(made.path).documents
    lines = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    assert lines == [{"_id": id, **store.fields(row)} for row, id in enumerate(store.ids)]

    link = f"query-id\tcorpus-id\tscore\n{lines[0]['_id']}\t{lines[1]['_id']}\t1\n"
    (collection / "qrels").mkdir()
    (collection / "qrels" / "train.tsv").write_text(link, encoding="utf-8")
    first: list[str | Path] = ["train", collection, "--name", "docs", "--recipe", "bm25"]
    if command == "index":
        first = ["index", made.path, collection]
    run_json(*first, "--out", root, "--exported-from", made.path)
    again = read_manifest(find_bundle(root, "docs"))
    assert again.version != made.path.name
    assert again.log_position == read_manifest(made.path).log_position
    async with running(root) as client:
        assert (await client.get("/readyz")).json()["model"] == again.version
        assert (await client.get("/v1/documents/a/new")).json()["fields"] == NEW
        assert (await client.get("/v1/documents/linux/scp")).status_code == 404
        assert (await client.put("/v1/documents/b", json=NEW)).json()["seq"] == 4
        reply = await client.post("/v1/search", json={"query": "distant computer", "min_seq": 4})
        assert {"a/new", "b"} <= {hit["id"] for hit in reply.json()["hits"]}


def test_an_export_overwrites_nothing_and_leaves_no_partial_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("mine")
    words = ["bundles", "export", str(tmp_path / "docs"), str(corpus)]
    done = CliRunner().invoke(build_app(), words)
    assert str(done.exception) == f"{corpus}: exists already; choose another file or delete it"
    assert corpus.read_text() == "mine"
    corpus.unlink()

    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr("fullrank.storage.files.os.fsync", full)
    assert isinstance(CliRunner().invoke(build_app(), words).exception, OSError)
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


async def test_under_another_name_exported_live_documents_are_ordinary_documents(
    tmp_path: Path,
) -> None:
    make_bundle(tmp_path, "docs", created=at(1))
    async with running(tmp_path) as client:
        await write_some(client)
    made = compact(find_bundle(tmp_path, "docs"), LogPlace.of_file(tmp_path / FILE))
    assert log_position_of(made.path, "docs") == read_manifest(made.path).log_position
    assert log_position_of(made.path, "other") is None


async def test_a_restored_log_never_reuses_a_number_that_a_bundle_contains(tmp_path: Path) -> None:
    """Otherwise a later write would count as compacted already, and never become visible."""
    make_bundle(tmp_path, "docs", created=at(1))
    old, log = find_bundle(tmp_path, "docs"), tmp_path / FILE
    async with running(tmp_path) as client:
        await client.put("/v1/documents/first", json=NEW)
    copy = log.read_bytes()
    async with running(tmp_path) as client:
        await write_some(client)
    made = compact(old, LogPlace.of_file(log))
    log.write_bytes(copy)
    async with running(tmp_path) as client:
        assert (await client.get("/readyz")).json()["model"] == made.path.name
        reply = await client.put("/v1/documents/b", json=NEW)
        assert reply.json()["seq"] == made.seq + 1
        for id in ("b", "first", "a/new"):
            reply = await client.get(f"/v1/documents/{id}", params={"min_seq": made.seq + 1})
            assert reply.json()["fields"] == NEW
        body = {"version": old.name}
        swap = await client.put("/v1/models/aliases/default", json=body, headers=AUTH)
        assert swap.status_code == 409
        assert "the log no longer has those" in swap.json()["detail"]


async def test_the_log_position_of_another_log_does_not_count(tmp_path: Path) -> None:
    make_bundle(tmp_path / "one", "docs", created=at(1))
    async with running(tmp_path / "one") as client:
        await write_some(client)
    made = compact(find_bundle(tmp_path / "one", "docs"), LogPlace.of_file(tmp_path / "one" / FILE))
    (tmp_path / "one" / FILE).unlink()
    async with running(tmp_path / "one") as client:
        assert (await client.get("/readyz")).json()["model"] == made.path.name
        reply = await client.put("/v1/documents/b", json=NEW)
        assert reply.json()["seq"] == 1
        assert (await client.get("/v1/documents/b?min_seq=1")).status_code == 200


async def test_the_command_compacts_the_active_version_and_activates_the_result(
    tmp_path: Path,
) -> None:
    oldest, version = (make_bundle(tmp_path, "docs", seed=n, created=at(n)) for n in (1, 2))
    words = ["bundles", "compact", str(tmp_path / "docs")]

    async def command(*more: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, build_app(), [*words, *more])

    async with running(tmp_path, poll_ms=10) as client, running(tmp_path, poll_ms=10) as other:
        assert await client.write("a", NEW) == 1
        done = await command("--json", "--keep", "1")
        assert done.exit_code == 0, done.output
        made = json.loads(done.stdout)
        # The version that served before stays for a rollback.
        assert {path.name for path in (tmp_path / "docs").iterdir()} == {version, made["version"]}
        assert f"removed {tmp_path / 'docs' / oldest}" in done.stderr
        assert (made["parent"], made["documents"]) == (version, len(CORPUS) + 1)
        state = read_state(tmp_path)
        assert state is not None
        assert (state.version, state.generation) == (made["version"], made["generation"])
        listed = ok(await other.get("/v1/models", headers=AUTH))
        assert listed["converged"]
        assert [worker["version"] for worker in listed["workers"]] == [made["version"]] * 2
        for worker in (client, other):
            assert ok(await worker.get("/v1/documents/a"))["model"] == made["version"]
        assert (await command()).exit_code != 0
        assert await client.write("b", NEW) == 2
