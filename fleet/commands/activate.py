"""``fullrank bundles activate --ray``."""

from __future__ import annotations

from fleet.cluster import joined
from fleet.commands.asking import ask
from fleet.commands.checks import bundle_of
from fleet.serving.actors import running_coordinator
from fleet.serving.coordinator import Snapshot


def activate(bundle: str, *, address: str) -> Snapshot:
    """Serve a sharded bundle from the fleet of a cluster.

    Args:
        bundle: Address of the version's folder, <root>/<name>/<version>, or <root>/<name> for its newest version. The
            root is the folder that the fleet serves.
        address: Of the cluster.

    Raises:
        FullrankError: No cluster answers, its fleet serves another folder, or the version cannot serve; nothing was
            changed then. Or the coordinator died meanwhile, or does not answer: then it may still make the change.
    """
    with joined(address):
        served: Snapshot = ask(running_coordinator(), "follow", None, 0, 0.0)
        return swapped(bundle_of(served, bundle))


def swapped(name_or_version: str) -> Snapshot:
    """Serve a version, or the newest version of a name, from the fleet of the joined cluster. Raises FullrankError."""
    found: Snapshot = ask(running_coordinator(), "activate", name_or_version)
    return found
