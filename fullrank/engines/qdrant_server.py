"""A server of Qdrant.

    <name>_<bundle id>_points     the collection
    <name>_<bundle id>            an alias of it, created when all points are stored
    <name>                        an alias of the newest version, switched in the same request

An unfinished export leaves a collection without an alias; the next export of the name deletes it, so only one may run
at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullrank.engines.qdrant import DENSE, SCORE, TERMS, has_candidates, payload, vectors
from fullrank.engines.source import Source, is_version_of, outdated
from fullrank.errors import ExportError
from fullrank.progress import Reporter

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

_POINTS = "_points"


def export_collection(source: Source, client: QdrantClient, report: Reporter) -> bool:
    """Store all documents in a collection, then switch the aliases to it.

    Args:
        source: What to export.
        client: Connected to the server.
        report: Shows the progress.

    Returns:
        Whether it was stored; False: the server had this version.

    Raises:
        ExportError: The name belongs to a collection, or the server did not store every point.
    """
    collections = [item.name for item in client.get_collections().collections]
    if source.name in collections:
        raise ExportError(f"{source.name}: is a collection; choose another name with --name")
    aliases = {item.alias_name: item.collection_name for item in client.get_aliases().aliases}
    is_new = source.versioned not in aliases
    if is_new:
        for collection in collections:
            version = collection.removesuffix(_POINTS)
            is_ours = version != collection and is_version_of(source.name, version)
            if is_ours and version not in aliases:
                client.delete_collection(collection)
        _store(source, client, report)
    previous = aliases[source.name].removesuffix(_POINTS) if source.name in aliases else None
    _switch(source, client, replaces=previous is not None)
    for version in outdated(source, previous, list(aliases)):
        client.delete_collection(version + _POINTS)
    return is_new


def _store(source: Source, client: QdrantClient, report: Reporter) -> None:
    from qdrant_client import models

    collection = source.versioned + _POINTS
    dense, sparse = {}, {SCORE: models.SparseVectorParams()}
    if has_candidates(source):
        size, distance = source.n_dense, models.Distance.DOT
        dense[DENSE] = models.VectorParams(size=size, distance=distance)
        sparse[TERMS] = models.SparseVectorParams()
    client.create_collection(collection, vectors_config=dense, sparse_vectors_config=sparse)
    for entries in source.batches(report):
        points = [
            models.PointStruct(id=entry.row, vector=vectors(source, entry), payload=payload(entry))
            for entry in entries
        ]
        client.upsert(collection, points, wait=True)
    stored = client.count(collection, exact=True).count
    if stored != len(source):
        raise ExportError(f"{collection}: the server stored {stored} of {len(source)} points")


def _switch(source: Source, client: QdrantClient, *, replaces: bool) -> None:
    """Create the alias of the version and move that of the name, in one request."""
    from qdrant_client import models

    collection = source.versioned + _POINTS
    changes: list[models.AliasOperations] = []
    if replaces:
        old = models.DeleteAlias(alias_name=source.name)
        changes.append(models.DeleteAliasOperation(delete_alias=old))
    for alias in (source.versioned, source.name):
        new = models.CreateAlias(collection_name=collection, alias_name=alias)
        changes.append(models.CreateAliasOperation(create_alias=new))
    client.update_collection_aliases(changes)
