"""Training on a real cluster: the bits of one process, also when a node is killed meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fleet.jobs.tasks import InProcess, OnRay
from fleet.remote import Folder
from fleet.training.learner import Slices
from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from tests.planted import write_planted
from trainer.train import train

TINY = ["dimension=8", "epochs=4", "patience=4", "batch=32", "candidates=30", "rate=0.1"]


def trained(collection: Path, out: Path, runner: Any) -> str:
    """Train by four slices; return the bundle id."""
    found = train(
        collection,
        out,
        "planted",
        recipe="clicked",
        overrides=[*TINY, "members=1"],
        threads=1,
        distribution=Slices(Folder(str(out / "job")), runner, 4),
        reporter=Reporter(quiet=True),
    )
    return open_bundle(found.path).manifest.bundle_id


def test_a_node_that_dies_does_not_change_the_model(cluster: Any, ray: Any, tmp_path: Path) -> None:
    collection = write_planted(tmp_path / "collection")
    expected = trained(collection, tmp_path / "expected", InProcess())
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if list(tmp_path.glob("cluster/job/epochs/*/*/slice-*.npz")):
                cluster.remove_node(node, allow_graceful=False)
                killed.append(True)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert trained(collection, tmp_path / "cluster", OnRay(ray)) == expected
    finally:
        killer.join()
    assert killed
