"""A local shard of Qdrant Edge: the engine of Qdrant inside the application's own process.

FOLDER/<name>_<bundle id>/     a shard; it appears under this name when it is complete
FOLDER/<name>                  a link to the newest one
FOLDER/.<…>.partial/           an unfinished export, which the next one deletes
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullrank.engines.qdrant import DENSE, SCORE, TERMS, has_candidates, payload, vectors
from fullrank.engines.source import Source, outdated
from fullrank.progress import Reporter
from fullrank.storage.files import sync_folder

if TYPE_CHECKING:
    import qdrant_edge as edge

_PARTIAL = ".partial"


def export_shard(source: Source, folder: Path, report: Reporter) -> bool:
    """Write a shard of all documents, then point the link at it.

    Args:
        source: What to export.
        folder: Which holds the shards; it is created.
        report: Shows the progress.

    Returns:
        Whether it was written; False: the folder had this version.

    Raises:
        OSError: The folder cannot be written.
    """
    import qdrant_edge as edge

    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        for leftover in folder.glob(f".*{_PARTIAL}"):
            shutil.rmtree(leftover)
        place = folder / source.versioned
        is_new = not place.exists()
        if is_new:
            partial = folder / f".{source.versioned}{_PARTIAL}"
            partial.mkdir()
            _write(source, edge.EdgeShard.create(str(partial), _config(source)), report)
            partial.rename(place)
            sync_folder(folder)
        previous = _switch(folder / source.name, source.versioned)
        for name in outdated(source, previous, [item.name for item in folder.iterdir()]):
            shutil.rmtree(folder / name)
    return is_new


def search(
    shard: edge.EdgeShard, request: Mapping[str, Any], filter: edge.Filter | None = None
) -> list[edge.ScoredPoint]:
    """Search a shard by a request of `qdrant.Queries`.

    Args:
        shard: qdrant_edge.EdgeShard.load(folder / queries.collection).
        request: What `Queries.request` returned, without a filter in JSON.
        filter: Which points may be returned, in the form of qdrant_edge.

    Returns:
        Points, best first; the document's id is `payload["_id"]`.

    Example:
        >>> shard = EdgeShard.load(f"{folder}/{queries.collection}")
        >>> search(shard, queries.request("red apple"))[0].payload["_id"]
        'apple'
    """
    import qdrant_edge as edge

    prefetches = [
        edge.Prefetch(limit=side["limit"], query=_nearest(side), filter=filter)
        for side in request.get("prefetch", ())
    ]
    return shard.query(
        edge.QueryRequest(
            limit=request["limit"],
            offset=request["offset"],
            query=_nearest(request),
            prefetches=prefetches,
            filter=filter,
            with_payload=request["with_payload"],
        )
    )


def _nearest(part: Mapping[str, Any]) -> edge.Query:
    import qdrant_edge as edge

    query = part["query"]
    if isinstance(query, Mapping):
        query = edge.SparseVector(query["indices"], query["values"])
    return edge.Query.Nearest(query, using=part["using"])


def _config(source: Source) -> edge.EdgeConfig:
    import qdrant_edge as edge

    dense, sparse = None, [SCORE]
    if has_candidates(source):
        dense = {DENSE: edge.EdgeVectorParams(size=source.n_dense, distance=edge.Distance.Dot)}
        sparse.append(TERMS)
    return edge.EdgeConfig(dense, {name: edge.EdgeSparseVectorParams() for name in sparse})


def _write(source: Source, shard: edge.EdgeShard, report: Reporter) -> None:
    import qdrant_edge as edge

    def vector(value: Any) -> Any:
        is_sparse = isinstance(value, dict)
        return edge.SparseVector(value["indices"], value["values"]) if is_sparse else value

    for entries in source.batches(report):
        points = [
            edge.Point(
                entry.row,
                {name: vector(value) for name, value in vectors(source, entry).items()},
                payload(entry),
            )
            for entry in entries
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
    shard.optimize()
    shard.flush()
    shard.close()


def _switch(link: Path, target: str) -> str | None:
    """Point a link at a folder by one rename; return where it pointed before."""
    previous = link.readlink().name if link.is_symlink() else None
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)
    sync_folder(link.parent)
    return previous


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other export writes into the folder; the lock ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
