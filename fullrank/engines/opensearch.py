"""A bulk file for OpenSearch with the mapping of its index, and the body of a search.

    FILE                  NDJSON for POST _bulk: an action and a document per two lines
    FILE.index.json       for PUT /<name>_<bundle id>: settings and mapping
    FILE.aliases.json     for POST /_aliases: <name> becomes an alias of the new index

A document has

    vector    long, several   [t ‖ v ‖ b]: feature · 2³² + the bits of the float32 weight, which sort by feature
    words     rank_features   the positive entries of t, candidates of the fast mode (9 significant bits each)
    dense     knn_vector      [v ‖ b], candidates of the fast mode; missing where the model has no dense part
    fields    object          the stored fields; those of one kind are indexed for filters

The exact score is a script over `vector` alone. It needs nothing but doc values and Painless of the core: both vectors
ascend by feature, so the script merges them. Not tested against a server;
docs/guides/connect/engines.md says what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle.bundle import Bundle
from fullrank.engines.source import EncodedQuery, Entry, Source, as_json
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Int64
from fullrank.storage.files import replace_file, replacing
from fullrank.storage.records import blocks

# Candidates of each side in the fast mode; the script scores the best of both.
CANDIDATES = 200
SCRIPT = """
def stored = doc['vector'];
def features = params.features;
def weights = params.weights;
int n = features.size();
int q = 0;
double score = params.offset;
for (int i = 0; i < stored.size() && q < n; ++i) {
  long packed = stored.get(i);
  long feature = packed >> 32;
  while (q < n && features.get(q) < feature) { ++q; }
  if (q < n && features.get(q) == feature) {
    score += Float.intBitsToFloat((int) packed) * weights.get(q);
    ++q;
  }
}
return Math.max(0.0, score);
""".strip()
_MAX_ID_BYTES = 512
_TYPES = {"keyword": "keyword", "number": "double", "boolean": "boolean"}


class Queries:
    """Turns query texts into bodies of searches in the exported version of a bundle.

    Example:
        >>> queries = Queries(open_bundle(path))
        >>> body = queries.request("red apple", limit=5)
        >>> found = httpx.post(f"{url}/{queries.index}/_search", json=body).json()
        >>> for hit in found["hits"]["hits"]:
        ...     print(hit["_id"], queries.score(hit, body))
    """

    def __init__(self, bundle: Bundle, name: str | None = None) -> None:
        self._source = Source.of(bundle, name)

    @property
    def index(self) -> str:
        """The index of exactly this bundle."""
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
        """Return the body of POST /{index}/_search.

        Args:
            mode: "exact" scores every document that the filter leaves; "fast" rescores candidates of both sides.
            filter: A query of OpenSearch, such as {"term": {"fields.section": 1}}.
        """
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode {mode!r} is neither 'exact' nor 'fast'")
        query = self._source.encode(text)
        asked = {"match_all": {}} if filter is None else {"bool": {"filter": [dict(filter)]}}
        found: dict[str, Any] = {"size": limit, "from": offset, "_source": ["fields"]}
        if mode == "exact":
            return found | {"query": self._scored(query, asked)}
        window = max(2 * CANDIDATES, offset + limit)
        rescore = {
            "rescore_query": self._scored(query, {"match_all": {}}),
            "query_weight": 0,
            "rescore_query_weight": 1,
        }
        return found | {
            "query": _candidates(query, self._source.n_dense, filter),
            "rescore": {"window_size": window, "query": rescore},
        }

    def score(self, hit: Mapping[str, Any], request: Mapping[str, Any]) -> float:
        """Return the score of a hit: OpenSearch refuses negative scores, so the script adds an offset."""
        query = request["query"]
        if "rescore" in request:
            query = request["rescore"]["query"]["rescore_query"]
        offset = query["script_score"]["script"]["params"]["offset"]
        return float(hit["_score"] - offset)

    def _scored(self, query: EncodedQuery, asked: Mapping[str, Any]) -> dict[str, Any]:
        features, weights = self._source.joined(query)
        parameters = {
            "features": features.tolist(),
            "weights": weights.tolist(),
            "offset": self._offset(query),
        }
        script = {"source": SCRIPT, "lang": "painless", "params": parameters}
        return {"script_score": {"query": dict(asked), "script": script}}

    @cached_property
    def _bounds(self) -> tuple[float, float, float, float]:
        """The smallest and largest weight of a term, the largest length of v and the smallest bias."""
        encoded = self._source.bundle.encoded
        low, high, length = 0.0, 0.0, 0.0
        for block in blocks(encoded):
            terms = block.sparse.values
            low, high = float(terms.min(initial=low)), float(terms.max(initial=high))
            length = float(np.linalg.norm(block.dense, axis=1).max(initial=length))
        return low, high, length, float(encoded.bias.min(initial=0.0))

    def _offset(self, query: EncodedQuery) -> float:
        """Return an integer that no score lies below the negative of: Σ min(s·t) − ‖u‖ max ‖v‖ + min b."""
        low, high, length, bias = self._bounds
        terms = np.minimum(query.weights * low, query.weights * high).sum(dtype=np.float64)
        dense = float(np.linalg.norm(query.dense[:-1])) * length
        return float(np.ceil(dense - terms - bias))


def write_bulk(source: Source, file: Path, report: Reporter) -> list[Path]:
    """Write the bulk file, its mapping and its alias; each appears when it is complete, the bulk file last.

    Raises:
        ExportError: OpenSearch cannot take a field or an id.
    """
    index, aliases = (file.with_name(f"{file.name}.{what}.json") for what in ("index", "aliases"))
    _check_names(source)
    with replacing(file) as lines:
        for entries in source.batches(report):
            for entry in entries:
                if len(entry.id.encode()) > _MAX_ID_BYTES:
                    raise ExportError(
                        f"{entry.id[:40]}…: OpenSearch takes ids of at most 512 bytes"
                    )
                action = {"index": {"_index": source.versioned, "_id": entry.id}}
                lines.write(f"{as_json(action)}\n{_document(source, entry)}\n")
        # Just before the bulk file appears, so that a killed export leaves no files of two versions.
        replace_file(index, as_json(_index(source)) + "\n")
        replace_file(aliases, as_json(_aliases(source)) + "\n")
    return [file, index, aliases]


def _check_names(source: Source) -> None:
    """Refuse names of fields that OpenSearch reads as paths of objects which it cannot have. Raises ExportError."""
    names = source.filter_fields
    for name in names:
        parts = name.split(".")
        above = {".".join(parts[:size]) for size in range(1, len(parts))}
        if not all(part.strip() for part in parts):
            raise ExportError(f"field {name!r}: OpenSearch takes no empty names")
        if found := sorted(above.intersection(names)):
            raise ExportError(
                f"field {name!r}: OpenSearch reads it as a part of the field {found[0]!r}"
            )


def pack(features: Int64, weights: Float32) -> Int64:
    """Pack a sparse vector into integers that sort by feature: feature · 2³² + the bits of the weight."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32).astype(np.int64)
    return features.astype(np.int64) << 32 | bits


def _document(source: Source, entry: Entry) -> str:
    positive = entry.weights > 0
    features, weights = entry.features[positive].tolist(), entry.weights[positive]
    values = as_json(weights)[1:-1].split(",") if len(weights) else []
    parts = [
        f'"vector":{as_json(pack(*source.joined(entry)))}',
        f'"words":{{{",".join(f"{_quoted(f)}:{w}" for f, w in zip(features, values, strict=True))}}}',
        f'"fields":{entry.fields}',
    ]
    if source.n_dense > 1:
        parts.append(f'"dense":{as_json(entry.dense)}')
    return f"{{{','.join(parts)}}}"


def _quoted(feature: int) -> str:
    return f'"{feature}"'


def _index(source: Source) -> dict[str, Any]:
    fields = {name: {"type": _TYPES[field.kind]} for name, field in source.filter_fields.items()}
    properties: dict[str, Any] = {
        "vector": {"type": "long", "index": False},
        "words": {"type": "rank_features"},
        "fields": {"type": "object", "dynamic": False, "properties": fields},
    }
    settings: dict[str, Any] = {}
    if source.n_dense > 1:
        method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
        properties["dense"] = {
            "type": "knn_vector",
            "dimension": source.n_dense,
            "method": method,
        }
        settings = {"index": {"knn": True}}
    mappings = {
        "dynamic": False,
        "_meta": {"fullrank_version": source.bundle.version},
        "_source": {"excludes": ["vector", "words", "dense"]},
        "properties": properties,
    }
    return {"settings": settings, "mappings": mappings}


def _aliases(source: Source) -> dict[str, Any]:
    pattern = {"index": f"{source.name}_*", "alias": source.name, "must_exist": False}
    return {
        "actions": [
            {"remove": pattern},
            {"add": {"index": source.versioned, "alias": source.name}},
        ]
    }


def _candidates(
    query: EncodedQuery, n_dense: int, filter: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the query that finds candidates: the words as rank features, and the nearest dense vectors."""
    sides: list[dict[str, Any]] = [
        {"rank_feature": {"field": f"words.{feature}", "linear": {}, "boost": weight}}
        for feature, weight in zip(query.features.tolist(), query.weights.tolist(), strict=True)
        if weight > 0
    ]
    if n_dense > 1:
        nearest: dict[str, Any] = {"vector": query.dense.tolist(), "k": CANDIDATES}
        sides.append({"knn": {"dense": nearest | ({} if filter is None else {"filter": filter})}})
    found: dict[str, Any] = {"should": sides, "minimum_should_match": 1}
    return {"bool": found | ({} if filter is None else {"filter": [dict(filter)]})}
