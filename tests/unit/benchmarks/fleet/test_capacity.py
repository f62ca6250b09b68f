"""The capacity model: sums that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fleet.capacity import Recorded, clicks, plan, settings

RECORDED = Recorded(1_000_000, 2_000_000_000, np.full(100, 0.01))


def test_a_fleet_of_ten_million_documents() -> None:
    given = settings(["shard_documents=2e6", "machine_cores=8", "machine_gib=64"])
    row = plan(RECORDED, 10_000_000, 100.0, given)
    assert row["shards"] == 5
    # 10 GB a shard twice over: 2,000 bytes a document.
    assert row["memory_gib"] == pytest.approx(2 * 2e10 / 2**30, abs=0.1)
    # 2 million documents take 20 ms; 100 searches a second keep 2 cores busy, one on each replica, half idle: 2.
    # The router: (0.2 + 5 · 0.35) ms · 100 / 0.5 = 0.39 cores.
    assert row["cores"] == 5 * 2 * 2 + 1
    assert row["machines"] == 3
    assert row["busy"] == pytest.approx(0.5 * (1 + row["hedged"]), abs=0.02)
    assert row["p50_ms"] >= 20


def test_more_than_sixteen_shards_are_named_as_too_many() -> None:
    assert plan(RECORDED, 10**7, 1.0, settings(["shard_documents=1e6"]))["fan_out_fits"]
    assert not plan(RECORDED, 10**8, 1.0, settings(["shard_documents=1e6"]))["fan_out_fits"]


def test_clicks_need_disk_and_training() -> None:
    row = clicks(1e9, settings(["click_bytes=100", "epochs=10", "links_per_s=1e6"]))
    assert row == {"clicks": 1e9, "log_gib": 93, "training_core_hours": 2.8}


def test_an_unknown_assumption_is_refused() -> None:
    with pytest.raises(ValueError, match="no assumption 'cores'"):
        settings(["cores=3"])
