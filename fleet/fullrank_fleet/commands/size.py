"""``fullrank fleet scale`` and ``stop``."""

from __future__ import annotations

from fullrank_fleet.cluster import joined
from fullrank_fleet.commands.asking import ask
from fullrank_fleet.commands.checks import check_root
from fullrank_fleet.remote import absolute
from fullrank_fleet.serving.actors import running_coordinator, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot


def scale(bundles: str, replicas: int, *, address: str) -> Snapshot:
    """Change how many replicas each shard of a fleet has; return once new ones have loaded what serves.

    Args:
        bundles: Address of the folder that the fleet serves.
        replicas: Of each shard.
        address: Of the cluster.

    Raises:
        FullrankError: No cluster answers, its fleet serves another folder, or a swap is in progress; nothing was
            changed then. Or the coordinator died meanwhile, or does not answer: then it may still make the change.
    """
    with joined(address):
        _check(bundles)
        found: Snapshot = ask(running_coordinator(), "scale", replicas)
        return found


def stop(bundles: str, *, address: str) -> None:
    """Stop the coordinator and all replicas of a fleet; arguments and errors as of ``scale``."""
    with joined(address):
        _check(bundles)
        stop_fleet()


def _check(bundles: str) -> None:
    served: Snapshot = ask(running_coordinator(), "follow", None, 0, 0.0)
    check_root(served, absolute(bundles))
