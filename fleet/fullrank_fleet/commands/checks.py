"""Check that the fleet of a cluster is the one that a command means; there is one fleet in a cluster."""

from __future__ import annotations

import os

from fullrank.errors import FullrankError
from fullrank_fleet.remote import absolute
from fullrank_fleet.serving.coordinator import Snapshot

_LOCAL = ("file://", "local://")


def serves(served: Snapshot, root: str) -> bool:
    """Return whether a fleet serves the sharded bundles of a folder."""
    return _place(served.root) == _place(root)


def _place(root: str) -> str:
    """Return one text for all addresses of a folder: with and without file://, a last slash and symbolic links."""
    for start in _LOCAL:
        root = root.removeprefix(start)
    return root.rstrip("/") if "://" in root else os.path.realpath(root)


def check_root(served: Snapshot, root: str) -> None:
    """Check that a fleet serves the sharded bundles of a folder. Raises FullrankError."""
    if not serves(served, root):
        raise FullrankError(
            f"{root}: the fleet of this cluster does not serve this folder, but {served.root}"
        )


def check_replicas(served: Snapshot, replicas: int) -> None:
    """Check that a fleet has so many replicas of each shard. Raises FullrankError."""
    if served.per_shard != replicas:
        raise FullrankError(
            f"--replicas {replicas}: the fleet of this cluster was started with {served.per_shard} replicas of each "
            f"shard; join it with --replicas {served.per_shard}"
        )


def bundle_of(served: Snapshot, address: str) -> str:
    """Return the version that an address names, or the name of which it means the newest version.

    Args:
        served: By the fleet.
        address: <root>/<name>/<version>, or <root>/<name>; root: the folder that the fleet serves.

    Raises:
        FullrankError: The address is not in the folder of the fleet.
    """
    found = absolute(address.rstrip("/"))
    parent, _, last = found.rpartition("/")
    if not serves(served, parent):
        check_root(served, parent.rpartition("/")[0])
    return last
