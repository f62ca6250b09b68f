"""``fullrank bundles compact`` of a sharded bundle."""

from __future__ import annotations

from typing import Any

from fullrank.errors import FullrankError
from fullrank.progress import Reporter
from fullrank_fleet.cluster import joined
from fullrank_fleet.commands.activate import swapped
from fullrank_fleet.commands.asking import ask
from fullrank_fleet.commands.checks import serves
from fullrank_fleet.jobs.compact import CompactedSet, active_of, compact_set, trim_log
from fullrank_fleet.jobs.tasks import InProcess, OnRay
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.serving.actors import running_coordinator
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.serving.log import LogSource, check_same
from fullrank_fleet.sets import find_set
from fullrank_fleet.sets.manifest import SET
from fullrank_service.process.run import read_settings


def compact(bundle: str, *, address: str | None, activate: bool) -> dict[str, Any]:
    """Write the live documents of a sharded bundle into a new version, and serve that from the fleet.

    Args:
        bundle: Address of a version's folder, <root>/<name>/<version>, or <root>/<name> for the version that is served,
            else the newest.
        address: Of the cluster, as ``fullrank_fleet.cluster.joined`` takes it; None: this process compacts.
        activate: Serve the new version if the fleet of the cluster serves its parent.

    Returns:
        The JSON form of the command: that of ``CompactedSet``, the generation that serves it, or None, and how many
        operations were removed from the log.

    Raises:
        FullrankError: No cluster answers, there is no log, the fleet has another log, or as ``compact_set``. If the
            swap is refused, the new version is written and the old one serves.
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
            served = _served(root)
            if served is not None:
                check_same(log, served.log)
            made = compact_set(str(parent), place, runner=OnRay(ray), reporter=Reporter())
            if activate and served is not None:
                generation = _activated(made, root)
    removed = trim_log(Folder(root), name, place)
    return {**made.as_dict(), "generation": generation, "removed": removed}


def _found(address: str) -> Folder:
    """Return the folder of a version, or of the version of a name that serves, else of its newest."""
    folder = Folder(address.rstrip("/"))
    if folder.has(SET):
        return folder
    root, _, name = folder.address.rpartition("/")
    active = active_of(Folder(root))
    if active is not None and (folder / active).has(SET):
        return folder / active
    return find_set(Folder(root), name)


def _served(root: str) -> Snapshot | None:
    """Return what the fleet of the joined cluster serves; None if no fleet serves this folder."""
    try:
        coordinator = running_coordinator()
    except FullrankError:
        return None
    found: Snapshot = ask(coordinator, "follow", None, 0, 0.0)
    return found if found.version is not None and serves(found, root) else None


def _activated(made: CompactedSet, root: str) -> int | None:
    """Serve a new version, unless another one than its parent is active by now; return the generation."""
    served = _served(root)
    if served is None or served.version != made.parent:
        return None
    return swapped(made.version).generation
