"""``fullrank bundles activate --ray``."""

from __future__ import annotations

from fleet.cluster import joined
from fleet.serving.actors import result_of, running_coordinator
from fleet.serving.coordinator import Snapshot
from fullrank.errors import FullrankError


def activate(bundle: str, *, address: str) -> Snapshot:
    """Serve a sharded bundle from the fleet of a cluster.

    Args:
        bundle: Address of the version's folder, <root>/<name>/<version>.
        address: Of the cluster.

    Raises:
        FullrankError: No cluster answers, or the version cannot serve; nothing was changed then. Or the coordinator
            died meanwhile.
    """
    version = bundle.rstrip("/").rpartition("/")[2]
    with joined(address):
        return swapped(version)


def swapped(version: str) -> Snapshot:
    """Serve a version from the fleet of the joined cluster. Raises FullrankError."""
    try:
        found: Snapshot = result_of(running_coordinator().activate.remote(version))
    except ConnectionError as error:
        raise FullrankError(
            "the coordinator died during the swap, which is done or has changed nothing; run the command again"
        ) from error
    return found
