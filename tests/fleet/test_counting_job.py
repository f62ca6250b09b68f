"""Counting on a real cluster: equal to one machine, also when a node is killed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.tasks import OnRay
from fullrank_fleet.remote import Folder
from fullrank_trainer.collection import read_collection
from tests.fleet.deaths import node_dies_at
from tests.planted import write_planted
from tests.unit.fleet.counting.random_collections import assert_equal


def test_a_node_that_dies_changes_nothing(cluster: Any, ray: Any, tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "collection"))
    folder = tmp_path / "count"
    with node_dies_at(cluster, folder, "*/tally-*.npz"):
        counting = DistributedCounting(Folder(str(folder)), OnRay(ray), piece_bytes=200)
        assert_equal(collection, ["title", "text"], counting)
