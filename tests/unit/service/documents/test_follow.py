"""Following the log: a view contains all operations up to the number that it reports."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.live import segments
from fullrank_service.documents import follow
from fullrank_service.documents import follow as merging
from fullrank_service.documents.follow import Tail
from fullrank_service.documents.log import Caps, Submission, Write
from fullrank_service.documents.sqlitelog import LogPlace, SqliteLog
from tests.bundles import make_bundle

pytestmark = pytest.mark.anyio


async def test_a_document_that_is_written_twice_is_visible_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ten documents twice, read four at a time: the log has only the second write of each."""
    monkeypatch.setattr(follow, "CHUNK", 4)
    make_bundle(tmp_path, "docs")
    bundle = open_bundle(find_bundle(tmp_path, "docs"))
    seen: list[tuple[int, int]] = []

    def changed() -> None:
        [followed] = tail.views()
        seen.append((followed.seq, len(followed.view) - len(bundle.documents)))

    tail = Tail(LogPlace.of_file(tmp_path / "log"), changed=changed)
    tail.prepare(bundle)
    log = SqliteLog(tmp_path / "log")
    writes = [Write(f"n{i}", b"{}") for i in range(10)]
    log.commit([Submission("docs", writes, lambda first: b"")] * 2, Caps())
    log.close()
    tail.start()
    try:
        await tail.view(bundle, 20, 30)
    finally:
        tail.close()
    assert [documents for documents, _ in groupby(seen, itemgetter(1))] == [0, 4, 8, 10]
    assert all(documents == 10 for seq, documents in seen if seq >= 10), seen


async def test_an_operation_that_cannot_be_applied_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both while it is followed and when a service starts with it; the others are served."""
    make_bundle(tmp_path, "docs")
    bundle = open_bundle(find_bundle(tmp_path, "docs"))
    place, skipped = LogPlace.of_file(tmp_path / "log"), list[int]()

    def tail_of_bundle() -> Tail:
        tail = Tail(place, skipped=lambda: skipped.append(1))
        tail.prepare(bundle)
        return tail

    following = tail_of_bundle()
    text, log = b'{"text": "files"}', SqliteLog(tmp_path / "log")
    writes = [Write("a", text), Write("ls", b"{damaged"), Write("b", text), Write("c", text)]
    log.commit([Submission("docs", writes, lambda first: b"")], Caps())
    log.close()
    for tail in (following, tail_of_bundle()):
        tail.start()
        try:
            view = await tail.view(bundle, 4, 30)
        finally:
            tail.close()
        assert view.seq == 4
        assert sorted(id for part in view.added for id in part.store.ids) == ["a", "b", "c"]
        with pytest.raises(KeyError):
            view.fields("ls")  # that of the bundle was replaced
    assert len(skipped) == 2
    assert "operation 2 of the log was skipped, without document 'ls'" in caplog.text


@pytest.mark.sweep
async def test_segments_are_merged_in_the_background_while_writes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 single writes, some on documents written before; at the end few segments have all that is left."""
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 1)
    monkeypatch.setattr(merging, "_IDLE_S", 0.02)
    make_bundle(tmp_path, "docs")
    bundle = open_bundle(find_bundle(tmp_path, "docs"))
    tail = Tail(LogPlace.of_file(tmp_path / "log"), poll_s=0.001)
    tail.prepare(bundle)
    log = SqliteLog(tmp_path / "log")
    tail.start()
    rng, left = random.Random(1), dict[str, str]()
    try:
        for seq in range(1, 301):
            id = f"n{rng.randrange(120)}"
            fields = None if rng.random() < 0.2 else {"text": f"files {seq}"}
            left.pop(id, None)
            if fields is not None:
                left[id] = fields["text"]
            write = Write(id, None if fields is None else json.dumps(fields).encode())
            log.commit([Submission("docs", [write], lambda first: b"")], Caps())
            view = await tail.view(bundle, seq, 30)
            assert len(view) == len(bundle.documents) + len(left)
        async with asyncio.timeout(30):
            while len((view := await tail.view(bundle)).added) > 2:
                await asyncio.sleep(0.01)
    finally:
        log.close()
        tail.close()
    assert len(view) == len(bundle.documents) + len(left)
    assert {id: view.fields(id)["text"] for id in left} == left
    found = view.search(view.model.encode_queries(["files"]), 1000)
    assert {hit.id for hit in found.hits} >= left.keys()


@pytest.mark.sweep
async def test_writes_that_never_pause_leave_few_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 1)
    monkeypatch.setattr(segments, "_TIER", 1000)  # no merge by size
    monkeypatch.setattr(merging, "_IDLE_S", 5)
    monkeypatch.setattr(merging, "_BUSY", 0.1)
    make_bundle(tmp_path, "docs")
    bundle = open_bundle(find_bundle(tmp_path, "docs"))
    tail = Tail(LogPlace.of_file(tmp_path / "log"), poll_s=0.001)
    tail.prepare(bundle)
    log = SqliteLog(tmp_path / "log")
    tail.start()
    seq, sizes = 0, list[int]()
    try:
        async with asyncio.timeout(30):
            while seq < 20 or sizes[-1] > 2:
                seq += 1
                write = Write(f"n{seq}", b'{"text": "files"}')
                log.commit([Submission("docs", [write], lambda first: b"")], Caps())
                sizes.append(len((await tail.view(bundle, seq, 30)).added))
                await asyncio.sleep(0.01)
    finally:
        log.close()
        tail.close()
