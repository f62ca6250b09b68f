"""A thousand random searches to shards that are processes of a cluster: as the unsharded service, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_fleet.serving.actors import stop_fleet
from tests.fleet.support import router
from tests.unit.fleet.serving.equality import Whole, answer_of, request

pytestmark = pytest.mark.anyio
COUNT, SHARDS = 1_300, 4


async def test_actors_answer_as_one_bundle(cluster: Any, ray: Any, tmp_path: Path) -> None:
    whole = Whole(tmp_path, 400)
    sets = Path(whole.cut(SHARDS)).parents[1]
    rng = random.Random(11)
    statuses, deep, filtered = [], 0, 0
    try:
        with router(cluster.address, sets, tmp_path / "router", FULLRANK_ANONYMOUS="search") as (
            url,
            _,
        ):
            async with whole.service() as plain, httpx.AsyncClient(base_url=url) as sharded:
                for _ in range(COUNT):
                    asked = request(rng)
                    expected = answer_of(await plain.post("/v1/search", json=asked))
                    found = answer_of(await sharded.post("/v1/search", json=asked, timeout=30))
                    assert found == expected, asked
                    status, answer = found
                    statuses.append(status)
                    if status == 200:
                        assert answer["certified"]
                        assert answer["covered"] == 1
                        deep += asked.get("offset", 0) >= 300 and bool(answer["hits"])
                        filtered += "filter" in asked and bool(answer["hits"])
    finally:
        stop_fleet()
    assert statuses.count(200) + statuses.count(422) == COUNT
    assert statuses.count(200) > 0.8 * COUNT
    assert (deep > 20, filtered > 100) == (True, True), (deep, filtered)
