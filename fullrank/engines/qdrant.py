"""Points and requests of Qdrant, as JSON.

A point has up to three vectors:

    score   sparse, [t ‖ v ‖ b]   its product with [s ‖ u ‖ 1] is the score: a search over it is exact
    terms   sparse, t             candidates of the fast mode
    dense   dense, [v ‖ b]        candidates of the fast mode; missing where the model has no dense part

and the stored fields with the document's id (`_id`) as payload. Its id is the document's row in the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullrank.bundle.bundle import Bundle
from fullrank.engines.source import EncodedQuery, Entry, Source, fields_of

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

    Args:
        bundle: The opened bundle.
        name: The --name of the export, if it had one.

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
            text: The query.
            limit: How many points.
            offset: How many of the best points to skip.
            mode: "exact" searches the joined vector; "fast" rescores candidates of both sides with it.
            filter: In Qdrant's form; the keys are the stored fields.

        Raises:
            ValueError: The mode is unknown.
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
