"""The measurement of caches, on a model of seven documents: what is found is what was encoded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.performance.caching import WAYS, _break_even, measured, redis_server, table
from fullrank.bundle import open_bundle
from fullrank_service.settings import Settings
from tests.api.support import find_redis_server
from tests.bundles import make_bundle


def test_every_cache_returns_the_encoded_embedding(tmp_path: Path) -> None:
    make_bundle(tmp_path, "learned", n_dense=8)
    [manifest] = tmp_path.glob("*/*/manifest.json")
    asked = [f"copy files {word} zip" for word in ("host", "remote", "list", "ssh", "move")]
    find_redis_server()  # skips without one
    with redis_server(tmp_path) as url:
        bundle = open_bundle(manifest.parent)
        facts = asyncio.run(measured(bundle, asked, url, Settings.defaults()))
    assert facts["equal"] == {"process": 5, "redis": 5, "by default": 5}
    assert set(facts["milliseconds"]) == set(WAYS)
    shown = table({"bm25": {"query": facts}})
    assert len(shown.rows[0]) == len(shown.headings)


def test_redis_saves_time_from_the_break_even_hit_rate() -> None:
    assert _break_even(1.0, 2.0, 1.0) is None
    assert _break_even(2.0, 1.0, 1.0) == pytest.approx(0.5)
    assert _break_even(10.0, 1.0, 1.0) == pytest.approx(0.1)
