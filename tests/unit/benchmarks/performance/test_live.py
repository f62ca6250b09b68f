"""The benchmark of live documents, on a handful of them."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance import live
from benchmarks.performance.live import Source, run, table
from fullrank.bundle import open_bundle
from tests.bundles import CORPUS, make_bundle


def test_every_size_is_measured_with_that_many_documents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(live, "_SINGLES", 2)
    bundle = open_bundle(tmp_path / "docs" / make_bundle(tmp_path, "docs"))
    documents: list[dict[str, Any]] = [dict(d.fields) for d in CORPUS]
    source = Source(cycle(documents))
    rows = run(bundle, source, ["copy files"], [0, 3, 300])
    assert [row["added"] for row in rows] == [0, 3, 300]
    assert [row["segments"] for row in rows] == [0, 1, 1]
    assert rows[0]["batch_ms"] is None
    assert all(row["fast_ms"][0] > 0 and row["exact_ratio"] > 0 for row in rows)
    assert all(row["exact_ms"][0] > 0 and row["one_ms"][0] > 0 for row in rows)
    # Two written alone for every size, beside those that stay.
    assert source.seq == 300 + 3 * 2
    assert all(row["fast_ratio_compacted"] > 0 < row["exact_ratio_compacted"] for row in rows)
    assert json.loads(json.dumps(rows)) == rows
    assert "| 300 | 1 |" in table(rows).markdown()
