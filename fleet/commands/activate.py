"""``fullrank bundles activate --ray``."""

from __future__ import annotations

from fleet.cluster import joined
from fleet.commands.asking import ask
from fleet.serving.actors import running_coordinator
from fleet.serving.coordinator import Snapshot


def activate(bundle: str, *, address: str) -> Snapshot:
    """Serve a sharded bundle from the fleet of a cluster.

    Args:
        bundle: Address of the version's folder, <root>/<name>/<version>.
        address: Of the cluster.

    Raises:
        FullrankError: No cluster answers, or the version cannot serve; nothing was changed then. Or the coordinator
            died meanwhile, or does not answer: then it may still make the change.
    """
    version = bundle.rstrip("/").rpartition("/")[2]
    with joined(address):
        return swapped(version)


def swapped(version: str) -> Snapshot:
    """Serve a version from the fleet of the joined cluster. Raises FullrankError."""
    found: Snapshot = ask(running_coordinator(), "activate", version)
    return found
