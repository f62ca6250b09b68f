"""Counting on a real cluster: equal to one machine, also when a node is killed meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fleet.counting.counting import DistributedCounting
from fleet.jobs.tasks import OnRay
from fleet.remote import Folder
from tests.planted import write_planted
from tests.unit.fleet.counting.random_collections import assert_equal
from trainer.collection import read_collection


def test_a_node_that_dies_changes_nothing(cluster: Any, ray: Any, tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "collection"))
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if list(tmp_path.glob("count/*/tally-*.npz")):
                cluster.remove_node(node, allow_graceful=False)
                killed.append(True)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    folder = Folder(str(tmp_path / "count"))
    try:
        counting = DistributedCounting(folder, OnRay(ray), piece_bytes=200)
        assert_equal(collection, ["title", "text"], counting)
    finally:
        killer.join()
    assert killed
