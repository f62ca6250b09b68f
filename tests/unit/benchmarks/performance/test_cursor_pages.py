"""The benchmark of pages of cursors, on a handful of documents."""

from __future__ import annotations

from pathlib import Path

from benchmarks.performance.cursor_pages import measure
from fullrank.bundle import find_bundle
from tests.bundles import make_bundle


def test_every_number_of_rewritten_documents_is_measured(tmp_path: Path) -> None:
    make_bundle(tmp_path, "docs")
    rows = measure(find_bundle(tmp_path, "docs"), [3, 20])
    assert [row["rewritten"] for row in rows] == [3, 20]
    for row in rows:
        assert row.keys() == {"rewritten", "made", "again", "page", "page_now"}
        assert all(value > 0 for value in row.values())
