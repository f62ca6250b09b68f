"""Following the log: a view contains all operations up to the number that it reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.bundle import find_bundle, open_bundle
from service.documents import follow
from service.documents.follow import Tail
from service.documents.log import Log
from service.documents.logfile import LogFile
from service.documents.submission import Caps, Submission, Write
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

    tail = Tail(LogFile(tmp_path / "log"), changed=changed)
    tail.prepare(bundle)
    log = Log(tmp_path / "log")
    writes = [Write(f"n{i}", b"{}") for i in range(10)]
    log.commit([Submission("docs", writes, lambda first: b"")] * 2, Caps())
    log.close()
    tail.start()
    try:
        await tail.view(bundle, 20, 30)
    finally:
        tail.close()
    assert [documents for _, documents in seen] == [4, 8, 10]
    assert all(documents == 10 for seq, documents in seen if seq >= 10), seen
