"""Index jobs on a real cluster: equal to one machine, also when a node is killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fullrank.errors import CollectionError
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess, OnRay
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import read_set
from tests.fleet.deaths import node_dies_at
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from tests.waiting import wait_until

SHARDS = 6
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_bundle(tmp_path_factory.mktemp("bundles"), is_reordered=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of(tmp_path_factory.mktemp("corpus"), 120)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the set that is written without a cluster."""
    return tmp_path_factory.mktemp("expected")


@pytest.fixture(scope="module")
def expected(bundle: Path, corpus: Path, alone: Path) -> str:
    return run(bundle, corpus, alone, InProcess())


def run(bundle: Path, corpus: Path, out: Path, runner: Any) -> str:
    found = index_set(
        str(bundle), str(corpus), str(out), shards=SHARDS, runner=runner, reporter=QUIET
    )
    return read_set(Folder(found.address)).set_id


def test_a_cluster_writes_the_same_shards(
    ray: Any, bundle: Path, corpus: Path, expected: str, tmp_path: Path
) -> None:
    assert run(bundle, corpus, tmp_path, OnRay(ray)) == expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_shards_do_not_depend_on_the_number_of_nodes(
    cluster: Any,
    ray: Any,
    bundle: Path,
    corpus: Path,
    alone: Path,
    expected: str,
    tmp_path: Path,
    count: int,
) -> None:
    with nodes(cluster, ray, count):
        assert run(bundle, corpus, tmp_path, OnRay(ray)) == expected
    found = bundle_ids(tmp_path)
    assert found == bundle_ids(alone)
    assert len(set(found)) == SHARDS


def bundle_ids(out: Path) -> list[str]:
    [file] = out.glob("*/*/set.json")
    return [shard["bundle_id"] for shard in json.loads(file.read_text())["shards"]]


@contextmanager
def nodes(cluster: Any, ray: Any, count: int) -> Iterator[None]:
    before = len(alive(ray))
    try:
        resize(cluster, ray, count)
        yield
    finally:
        resize(cluster, ray, before)


def resize(cluster: Any, ray: Any, count: int) -> None:
    """Add and remove nodes until there are so many; the one that the test has joined stays."""
    for node in list(cluster.worker_nodes)[: max(0, len(alive(ray)) - count)]:
        cluster.remove_node(node)
    for _ in range(count - len(alive(ray))):
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    wait_until(
        lambda: [node["Resources"]["CPU"] for node in alive(ray)] == [1.0] * count,
        f"the cluster has {count} nodes",
    )


def alive(ray: Any) -> list[Any]:
    return [node for node in ray.nodes() if node["Alive"]]


def test_errors_of_tasks_arrive_as_they_were_raised(ray: Any, bundle: Path, tmp_path: Path) -> None:
    line = json.dumps({"_id": "a", "text": "x"})
    (tmp_path / "corpus.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(CollectionError, match=r"shard \d: field '_id': 'a' is already the id"):
        run(bundle, tmp_path, tmp_path / "out", OnRay(ray))


def test_a_node_that_dies_changes_nothing(
    cluster: Any, ray: Any, bundle: Path, corpus: Path, expected: str, tmp_path: Path
) -> None:
    with node_dies_at(cluster, tmp_path, "**/manifest.json"):
        assert run(bundle, corpus, tmp_path, OnRay(ray)) == expected
    assert len(list(tmp_path.rglob("manifest.json"))) == SHARDS


def test_paths_of_the_command_mean_the_same_on_every_node(
    cluster: Any, bundle: Path, corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpus, tmp_path / "corpus")
    command = ["-m", "fullrank", "index", os.path.relpath(bundle, tmp_path), "corpus"]
    options = ["--out", "sets", "--ray", cluster.address, "--shards", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, *command, *options],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=240,
    )
    assert len(list(tmp_path.glob("sets/planted/*/shard-*/manifest.json"))) == 2
    assert len(list(tmp_path.glob("sets/planted/*/set.json"))) == 1
