"""The benchmark of live documents, on a handful of them."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

import pytest

from benchmarks.performance import live
from benchmarks.performance.live import Source, run, table
from tests.bundles import CORPUS, linear_model
from tests.live import bundle_of


def test_every_size_is_measured_with_that_many_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_SINGLES", 2)
    bundle = bundle_of(linear_model(CORPUS), {d.id: d.fields for d in CORPUS})
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
    assert json.loads(json.dumps(rows)) == rows
    assert "| 300 | 1 |" in table(rows).markdown()
