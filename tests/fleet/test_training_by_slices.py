"""Training on a real cluster: the bits of one process, also when a node or the driver is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from fullrank_fleet.jobs.tasks import InProcess, OnRay, Runner
from fullrank_fleet.remote import Folder
from fullrank_fleet.training.learner import Slices
from fullrank_trainer.train import train
from tests.fleet.deaths import node_dies_at
from tests.planted import write_planted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # .ci/run runs it

TINY = [
    "dimension=8",
    "epochs=4",
    "patience=4",
    "batch=32",
    "candidates=30",
    "rate=0.1",
    "members=1",
]


DRIVER = """
import sys
from pathlib import Path

from fullrank_fleet.commands.jobs import train
from fullrank.progress import Reporter

address, collection, out, resume, *overrides = sys.argv[1:]
found = train(
    Path(collection), Path(out), "planted", address=address, slices=4, rounds=2, scratch=None, resume=resume == "yes",
    recipe="clicked", overrides=overrides, threads=1, reporter=Reporter(quiet=True),
)
print(found.path)
"""


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("collection"))


def trained(collection: Path, out: Path, runner: Runner, rounds: int = 1) -> str:
    found = train(
        collection,
        out,
        "planted",
        recipe="clicked",
        overrides=TINY,
        threads=1,
        distribution=Slices(Folder(str(out / ".slices")), runner, 4, rounds=rounds),
        reporter=Reporter(quiet=True),
    )
    return open_bundle(found.path).manifest.bundle_id


def test_a_node_that_dies_does_not_change_the_model(cluster: Any, ray: Any, tmp_path: Path) -> None:
    collection = write_planted(tmp_path / "collection")
    expected = trained(collection, tmp_path / "expected", InProcess())
    out = tmp_path / "cluster"
    with node_dies_at(cluster, out, ".slices/epochs/*/*/slice-*.npz"):
        assert trained(collection, out, OnRay(ray)) == expected


def test_a_driver_that_dies_goes_on_with_the_same_bits(
    cluster: Any, collection: Path, tmp_path: Path
) -> None:
    expected = trained(collection, tmp_path / "expected", InProcess(), rounds=2)
    out = tmp_path / "cluster"

    def driver(resume: str) -> subprocess.Popen[str]:
        arguments = [cluster.address, str(collection), str(out), resume, *TINY]
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, text=True
        )

    with driver("no") as killed:
        deadline = time.monotonic() + 120
        while not list(out.glob(".slices-planted/epochs/*/*/slice-*.npz")):
            assert time.monotonic() < deadline
            assert killed.poll() is None
            time.sleep(0.01)
        killed.kill()
    assert not list(out.glob("planted/*/manifest.json"))
    with driver("yes") as resumed:
        answer, _ = resumed.communicate(timeout=240)
    path = Path(answer.splitlines()[-1])  # Ray prints lines of its own before.
    assert open_bundle(path).manifest.bundle_id == expected
    assert not list(out.glob(".slices*"))
