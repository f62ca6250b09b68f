"""``fullrank index --ray``."""

from __future__ import annotations

from fullrank.progress import Reporter
from fullrank_fleet.cluster import joined
from fullrank_fleet.jobs.index import SetResult, index_set
from fullrank_fleet.jobs.tasks import OnRay
from fullrank_fleet.remote import absolute


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
    """Index a corpus on a cluster.

    Args:
        address: Of the cluster, as ``fullrank_fleet.cluster.joined`` takes it.
        Others: As for ``fullrank_fleet.jobs.index.index_set``.

    Raises:
        FullrankError: No cluster answers, or as ``index_set``.
    """
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
