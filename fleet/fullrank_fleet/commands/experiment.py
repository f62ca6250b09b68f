"""``fullrank experiment start`` and ``stop`` with ``--ray``."""

from __future__ import annotations

from typing import Any

from fullrank_fleet.cluster import joined
from fullrank_fleet.commands.asking import ask
from fullrank_fleet.commands.checks import check_root
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.serving.actors import running_coordinator
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.sets import find_set
from fullrank_fleet.sets.manifest import SET


def start(bundle: str, share: float, max_days: float, *, address: str) -> Snapshot:
    """Interleave a sharded bundle with the one that a fleet serves.

    Args:
        bundle: Address of the candidate: <root>/<name>/<version>, or <root>/<name> for its newest version.
        share: Of the searches.
        max_days: After which the active version stays.
        address: Of the cluster.

    Raises:
        FullrankError: No cluster answers, its fleet serves another folder, or the candidate cannot serve; nothing was
            changed then. Or the coordinator died meanwhile, or does not answer: then it may still make the change.
    """
    root, version = _placed(absolute(bundle.rstrip("/")))
    with joined(address):
        return _changed(root, "start_experiment", version, share, max_days)


def stop(bundles: str, *, address: str) -> Snapshot:
    """End the experiment of a fleet; bundles: address of the folder that it serves. Raises as ``start``."""
    with joined(address):
        return _changed(absolute(bundles.rstrip("/")), "stop_experiment")


def _placed(bundle: str) -> tuple[str, str]:
    """Return the root and the version of a bundle. Raises FullrankError."""
    parent, _, name = bundle.rpartition("/")
    if Folder(bundle).has(SET):
        return parent.rpartition("/")[0], name
    return parent, find_set(Folder(parent), name).address.rpartition("/")[2]


def _changed(root: str, change: str, *arguments: Any) -> Snapshot:
    """Let the coordinator of the joined cluster change what it serves."""
    coordinator = running_coordinator()
    served: Snapshot = ask(coordinator, "follow", None, 0, 0.0)
    check_root(served, root)
    found: Snapshot = ask(coordinator, change, *arguments)
    return found
