"""Writes, and their compaction, on fleets with a second stage change answers as on one machine with it.

The tests of ``test_equal_live`` and ``test_equal_compacted`` run here over a bundle with a second stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullrank.rerank.stage import DEPTH
from tests.unit.fleet.serving.reordering import stage_for
from tests.unit.fleet.serving.routing import Whole
from tests.unit.fleet.serving.test_equal import all_equal
from tests.unit.fleet.serving.test_equal_compacted import (
    test_compacted_fleets_answer_as_a_compacted_bundle as test_compacted_fleets,
)
from tests.unit.fleet.serving.test_equal_live import Places, written
from tests.unit.fleet.serving.test_equal_live import (
    merge_small_segments_only as merge_small_segments_only,
)
from tests.unit.fleet.serving.test_equal_live import places as places
from tests.unit.fleet.serving.test_equal_live import (
    test_writes_change_answers_equally as test_writes,
)

pytestmark = pytest.mark.anyio
__all__ = ["test_compacted_fleets", "test_writes"]


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    (tmp_path / "whole").mkdir()
    return Whole(tmp_path / "whole", 160, make_stage=stage_for)


async def test_live_documents_are_reordered_with_the_others(places: Places, whole: Whole) -> None:
    asked: dict[str, Any] = {"query": "copy zebra", "limit": 100, "min_score": -50, "explain": True}

    async def compare(seq: int, new: set[str]) -> None:
        body = {**asked, "min_seq": seq}
        status, found = await all_equal(clients, "POST", "/v1/search", json=body)
        assert (status, found["reordered"]) == (200, DEPTH)
        ids = [hit["id"] for hit in found["hits"]]
        assert new <= set(ids)
        assert all(hit["explanation"]["second_stage"] for hit in found["hits"])

    new = {"new/1", "new/2", whole.ids[3]}
    async with places.clients() as clients:
        for number, id in enumerate(sorted(new)):
            fields = {"title": "copy zebra", "text": "zebra files"}
            fields["published"] = f"2027-01-0{number + 1}"
            _, seq = await written(clients, "PUT", f"/v1/documents/{id}", json=fields)
        await compare(seq, new)
        _, seq = await written(clients, "DELETE", "/v1/documents/new/2")
        await compare(seq, new - {"new/2"})
        places.compact()
    async with places.clients() as clients:
        await compare(seq, new - {"new/2"})
