"""Which versions are removed from disk, as a table of states; and that their removal is whole."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank.bundle import BundleInfo, find_bundle, list_bundles, open_bundle, read_manifest
from fullrank.bundle.staging import StagingFolder
from fullrank.cli import build_app
from fullrank.errors import BundleNotFound
from fullrank_service.base.experiment import Experiment
from fullrank_service.models.retention import prune, superseded
from fullrank_service.models.state import ActiveState, lock, write_state
from fullrank_service.models.swap import SwapUnderWay
from fullrank_service.models.workers import Presence, Report
from tests.bundles import at, make_bundle

HOURS_AGO = time.time() - 2 * 3600


def info(version: str) -> BundleInfo:
    return BundleInfo(version[0], version, Path(version), "", {}, 1)


NEWEST_FIRST = [info(version) for version in ("a-4", "b-2", "a-3", "a-2", "b-1", "a-1")]
WORKER = Report("w", 1, "host")


@pytest.mark.parametrize(
    ("state", "workers", "keep", "removed"),
    [
        # Nothing is committed and nobody runs: the newest of each name stay.
        (None, [], 1, ["a-3", "a-2", "b-1", "a-1"]),
        (None, [], 2, ["a-2", "a-1"]),
        (None, [], 4, []),
        # The active version and the one to return to.
        (ActiveState(3, "a-1", None, (), "b-1"), [], 1, ["a-3", "a-2"]),
        # The candidate of an experiment, and what every worker keeps loaded.
        (
            ActiveState(3, "a-4", None, ("b-1",), None, Experiment("a-2", 0.2, 0, 14)),
            [],
            1,
            ["a-3", "a-1"],
        ),
        # What a worker serves while nothing is committed, has loaded, or has prepared for a swap.
        (None, [replace(WORKER, version="a-1", loaded=("a-1", "b-1"))], 1, ["a-3", "a-2"]),
        (None, [WORKER, replace(WORKER, prepared="a-3")], 2, ["a-2", "a-1"]),
    ],
)
def test_superseded_versions(
    state: ActiveState | None, workers: list[Report], keep: int, removed: list[str]
) -> None:
    found = superseded(NEWEST_FIRST, state, workers, keep)
    assert [one.version for one in found] == removed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Seven versions of "docs", of which the oldest is whole and the others are manifests alone; one of "other"."""
    root = tmp_path / "bundles"
    make_bundle(root, "other", created=at(1))
    make_bundle(root, "docs", created=at(1))
    first = find_bundle(root, "docs")
    manifest = read_manifest(first)
    for day in range(2, 8):
        folder = first.with_name(f"docs-v{day}")
        folder.mkdir()
        created = f"2026-01-0{day}T00:00:00+00:00"
        (folder / "manifest.json").write_text(
            replace(manifest, version=folder.name, created=created).dump()
        )
    return root


def docs(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "docs").iterdir())


def test_pruning_keeps_what_is_used_and_removes_whole_folders(root: Path) -> None:
    first = docs(root)[0]
    write_state(root, ActiveState(1, first))
    presence = Presence(root)
    presence.publish(loaded=("docs-v2",))
    removed = prune(root, keep=2)
    presence.close()
    assert {one.path.name for one in removed} == {"docs-v3", "docs-v4", "docs-v5"}
    assert docs(root) == [first, "docs-v2", "docs-v6", "docs-v7"]
    assert len(list_bundles(root)) == 5


def test_pruning_one_name_leaves_the_others(root: Path) -> None:
    assert prune(root, "other", keep=1) == []
    assert len(docs(root)) == 7
    for unknown in ("../docs", "doc"):
        with pytest.raises(BundleNotFound, match=unknown):
            prune(root, unknown)


def test_nothing_is_removed_during_a_swap(root: Path) -> None:
    with lock(root), pytest.raises(SwapUnderWay):
        prune(root, keep=1)
    assert len(docs(root)) == 7


def test_a_reader_of_a_removed_version_goes_on(root: Path) -> None:
    path = root / "docs" / docs(root)[0]
    bundle = open_bundle(path)
    before = bundle.search("copy files")
    prune(root, keep=1)
    assert not path.exists()
    assert before.hits
    assert bundle.search("copy files") == before


def test_only_folders_of_dead_writers_are_swept(root: Path) -> None:
    left, fresh = root / "docs/.tmp-left", root / "docs/.tmp-fresh"
    for folder in (left, fresh):
        (folder / "documents").mkdir(parents=True)
        (folder / "documents/dense.npy").write_bytes(b"half")
    with StagingFolder(root / "docs") as writing:
        for folder in (left, writing.path):
            for path in (*folder.rglob("*"), folder):
                os.utime(path, (HOURS_AGO, HOURS_AGO))
        [removed] = prune(root, keep=9)
        assert removed.path == left
        assert removed.bytes > 0
        assert writing.path.is_dir()
    assert fresh.is_dir()
    assert not left.exists()


def test_an_interrupted_index_is_swept_after_a_week(root: Path) -> None:
    left, fresh = root / "docs/.resume-left", root / "docs/.resume-fresh"
    for folder, days in ((left, 8), (fresh, 6)):
        folder.mkdir()
        at = time.time() - days * 86400
        os.utime(folder, (at, at))
    assert [removed.path for removed in prune(root, keep=9)] == [left]
    assert fresh.is_dir()


def test_the_command_lists_before_it_removes(root: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), ["bundles", "prune", str(root), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert "would remove 5 folders" in run("docs", "--keep", "2", "--dry-run")
    assert len(docs(root)) == 7
    report = json.loads(run("docs", "--keep", "2", "--json"))
    assert len(report["removed"]) == 5
    assert docs(root) == ["docs-v6", "docs-v7"]
    assert "removed 0 folders" in run()
