"""Export to Qdrant, to a server or a local shard, and query it there.

A point has up to three vectors:

    score   sparse, [t ‖ v ‖ b]   its product with [s ‖ u ‖ 1] is the score: a search over it is exact
    terms   sparse, t             candidates of the fast mode
    dense   dense, [v ‖ b]        candidates of the fast mode; missing where the model has no dense part

and the stored fields with the document's id (`_id`) as payload. Its id is the document's row in the bundle.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullrank.bundle.bundle import Bundle
from fullrank.engines.source import EncodedQuery, Entry, Source, fields_of, is_version_of, outdated
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from fullrank.storage.files import locked, sync_folder

if TYPE_CHECKING:
    import qdrant_edge as edge
    from qdrant_client import QdrantClient

SCORE, TERMS, DENSE = "score", "terms", "dense"
# Candidates of each of the two vectors in the fast mode. Rescoring one takes as long as the exact search takes for a
# few hundred documents, so with more candidates fewer collections gain from it.
CANDIDATES = 100


def has_candidates(source: Source) -> bool:
    """Check that the fast mode exists: a model without a dense part has one vector only."""
    return source.n_dense > 1


def vectors(source: Source, entry: Entry) -> dict[str, Any]:
    """Return the vectors of one point."""
    found: dict[str, Any] = {SCORE: _sparse(*source.joined(entry))}
    if has_candidates(source):
        found[TERMS] = _sparse(entry.features, entry.weights)
        found[DENSE] = entry.dense.tolist()
    return found


def payload(entry: Entry) -> dict[str, Any]:
    """Return the payload of one point: the stored fields, and the document's id as `_id`."""
    return {"_id": entry.id, **fields_of(entry)}


class Queries:
    """Turns query texts into requests for the exported version of a bundle.

    Example:
        >>> queries = Queries(open_bundle(path))
        >>> body = queries.request("red apple", limit=5)
        >>> httpx.post(f"{url}/collections/{queries.collection}/points/query", json=body)
    """

    def __init__(self, bundle: Bundle, name: str | None = None) -> None:
        self._source = Source.of(bundle, name)

    @property
    def collection(self) -> str:
        """The collection of exactly this bundle (an alias, which exists once the export is complete)."""
        return self._source.versioned

    def request(
        self,
        text: str,
        limit: int = 10,
        *,
        offset: int = 0,
        mode: str = "exact",
        filter: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body of POST /collections/{collection}/points/query.

        Args:
            mode: "exact" searches the joined vector; "fast" rescores candidates of both sides with it.
            filter: In Qdrant's form; the keys are the stored fields.
        """
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode {mode!r} is neither 'exact' nor 'fast'")
        query = self._source.encode(text)
        found = {
            "query": _sparse(*self._source.joined(query)),
            "using": SCORE,
            "limit": limit,
            "offset": offset,
            "with_payload": True,
        }
        if filter is not None:
            found["filter"] = dict(filter)
        if mode == "fast" and has_candidates(self._source):
            found["prefetch"] = self._prefetch(query, max(CANDIDATES, offset + limit), filter)
        return found

    def _prefetch(
        self, query: EncodedQuery, limit: int, filter: Mapping[str, Any] | None
    ) -> list[dict[str, Any]]:
        sides: list[dict[str, Any]] = [
            {"query": query.dense.tolist(), "using": DENSE, "limit": limit},
            {"query": _sparse(query.features, query.weights), "using": TERMS, "limit": limit},
        ]
        return [side | ({} if filter is None else {"filter": dict(filter)}) for side in sides]


def _sparse(features: Any, weights: Any) -> dict[str, list[Any]]:
    return {"indices": features.tolist(), "values": weights.tolist()}


# A local shard of Qdrant Edge: the engine of Qdrant inside the application's own process.
#
# FOLDER/<name>_<bundle id>/     a shard; it appears under this name when it is complete
# FOLDER/<name>                  a link to the newest one
# FOLDER/.<…>.partial/           an unfinished export, which the next one deletes

_PARTIAL = ".partial"


def export_shard(source: Source, folder: Path, report: Reporter) -> bool:
    """Write a shard of all documents, then point the link at it.

    Returns:
        Whether it was written; False: the folder had this version.
    """
    import qdrant_edge as edge

    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
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
        previous = _relink(folder / source.name, source.versioned)
        for name in outdated(source, previous, [item.name for item in folder.iterdir()]):
            shutil.rmtree(folder / name)
    return is_new


def search(
    shard: edge.EdgeShard, request: Mapping[str, Any], filter: edge.Filter | None = None
) -> list[edge.ScoredPoint]:
    """Search a shard by a request of `Queries`.

    Args:
        shard: qdrant_edge.EdgeShard.load(folder / queries.collection).
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


def _relink(link: Path, target: str) -> str | None:
    """Point a link at a folder by one rename; return where it pointed before."""
    previous = link.readlink().name if link.is_symlink() else None
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)
    sync_folder(link.parent)
    return previous


# A server of Qdrant.
#
#     <name>_<bundle id>_points     the collection
#     <name>_<bundle id>            an alias of it, created when all points are stored
#     <name>                        an alias of the newest version, switched in the same request
#
# An unfinished export leaves a collection without an alias; the next export of the name deletes it, so only one may
# run at a time.

_POINTS = "_points"


def export_collection(source: Source, client: QdrantClient, report: Reporter) -> bool:
    """Store all documents in a collection, then switch the aliases to it.

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
    _switch_aliases(source, client, replaces=previous is not None)
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


def _switch_aliases(source: Source, client: QdrantClient, *, replaces: bool) -> None:
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
