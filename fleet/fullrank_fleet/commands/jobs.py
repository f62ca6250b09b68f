"""Commands that work on all nodes of a cluster: index, compact and train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.progress import Reporter
from fullrank_fleet.cluster import joined
from fullrank_fleet.commands.models import changed, served, serves
from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.compact import CompactedSet, active_of, compact_set, trim_log
from fullrank_fleet.jobs.index import SetResult, index_set
from fullrank_fleet.jobs.tasks import InProcess, OnRay
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.serving.actors import running_coordinator
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.serving.documents import LogSource, check_same
from fullrank_fleet.sets.manifest import SET, find_set
from fullrank_fleet.training.learner import Slices
from fullrank_service.process.run import read_settings
from fullrank_trainer.train import TrainResult
from fullrank_trainer.train import train as train_model


def index(
    bundle: str,
    corpus: str,
    out: str,
    name: str | None,
    *,
    address: str,
    shards: int,
    queries: str | None,
) -> SetResult:
    """Index a corpus on the cluster at an address; see ``fullrank_fleet.jobs.index.index_set``."""
    with joined(address) as ray:
        return index_set(
            absolute(bundle),
            absolute(corpus),
            absolute(out),
            name,
            shards=shards,
            runner=OnRay(ray),
            queries=None if queries is None else absolute(queries),
            reporter=Reporter(),
        )


def compact(bundle: str, *, address: str | None, activate: bool) -> dict[str, Any]:
    """Write the live documents of a sharded bundle into a new version, and serve that from the fleet.

    Args:
        bundle: Address of a version's folder, <root>/<name>/<version>, or <root>/<name> for the version that is served,
            else the newest.
        address: Of the cluster; None: this process compacts.
        activate: Serve the new version if the fleet of the cluster serves its parent.

    Returns:
        The JSON form of the command. If the swap is refused, the new version is written and the old one serves.
    """
    log = LogSource.of(read_settings())
    if log is None:
        raise FullrankError(
            "FULLRANK_DOCUMENTS_URL is unset: it names the log with the live documents of a sharded bundle"
        )
    parent = _found(absolute(bundle))
    root, name = parent.address.rsplit("/", 2)[:2]
    place = log.place()
    generation = None
    if address is None:
        made = compact_set(str(parent), place, runner=InProcess(), reporter=Reporter())
    else:
        with joined(address) as ray:
            before = _served(root)
            if before is not None:
                check_same(log, before.log)
            made = compact_set(str(parent), place, runner=OnRay(ray), reporter=Reporter())
            if activate and before is not None:
                generation = _activated(made, root, name)
    removed = trim_log(Folder(root), name, place)
    return {**made.as_dict(), "generation": generation, "removed": removed}


def _found(address: str) -> Folder:
    """Return the folder of a version, or of the version of a name that serves, else of its newest."""
    folder = Folder(address.rstrip("/"))
    if folder.has(SET):
        return folder
    root, _, name = folder.address.rpartition("/")
    active = active_of(Folder(root), name)
    if active is not None and (folder / active).has(SET):
        return folder / active
    return find_set(Folder(root), name)


def _served(root: str) -> Snapshot | None:
    """Return what the fleet of the joined cluster serves; None if no fleet serves this folder."""
    try:
        coordinator = running_coordinator()
    except FullrankError:
        return None
    found = served(coordinator)
    return found if found.version is not None and serves(found, root) else None


def _activated(made: CompactedSet, root: str, name: str) -> int | None:
    """Serve a new version, unless another one than its parent is active by now; return the generation."""
    now = _served(root)
    if now is None or now.of(name).version != made.parent:
        return None
    return changed("activate", made.version, name).generation


def train(
    collection: Path,
    out: Path,
    name: str,
    *,
    address: str,
    slices: int,
    rounds: int | None,
    scratch: str | None,
    resume: bool,
    reporter: Reporter | None = None,
    **settings: Any,
) -> TrainResult:
    """Train a model on a collection that every node can read; a cluster counts its texts, and slices take the steps.

    Args:
        rounds: An epoch.
        scratch: Address of a folder that every node can read and write; by default one in ``out``.
    """
    own = f"{out}/.slices-{name}"
    folder = Folder(absolute(f"{scratch}/{name}" if scratch else own))
    with joined(address) as ray:
        if not resume:
            folder.remove()
        runner = OnRay(ray)
        counting = DistributedCounting(folder / "counts", runner, reporter=reporter)
        found = train_model(
            collection,
            out,
            name,
            resume=resume,
            reporter=reporter,
            distribution=Slices(folder, runner, slices, rounds=rounds or 1, counting=counting),
            **settings,
        )
        folder.remove()
    return found
