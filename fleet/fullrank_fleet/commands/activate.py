"""``fullrank bundles activate --ray`` and ``rollback --ray``."""

from __future__ import annotations

from fullrank.errors import BundleNotFound
from fullrank_fleet.cluster import joined
from fullrank_fleet.commands.asking import ask
from fullrank_fleet.commands.checks import bundle_of, check_root
from fullrank_fleet.remote import absolute
from fullrank_fleet.serving.actors import running_coordinator
from fullrank_fleet.serving.coordinator import Snapshot


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


def rollback(bundles: str, *, address: str) -> Snapshot:
    """Serve the version again that a fleet served before the present one.

    Args:
        bundles: Address of the folder that the fleet serves.
        address: Of the cluster.

    Raises:
        FullrankError: There was no version before, or as ``activate``.
    """
    with joined(address):
        served: Snapshot = ask(running_coordinator(), "follow", None, 0, 0.0)
        check_root(served, absolute(bundles))
        if served.previous is None:
            raise BundleNotFound(f"{bundles}: no previous version was served before this one")
        return swapped(served.previous)


def swapped(name_or_version: str) -> Snapshot:
    """Serve a version, or the newest version of a name, from the fleet of the joined cluster. Raises FullrankError."""
    found: Snapshot = ask(running_coordinator(), "activate", name_or_version)
    return found
