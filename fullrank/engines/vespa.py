"""A feed file for Vespa with the schema of its documents, and the body of a query.

    FILE             one JSON document operation a line, for `vespa feed`
    FILE.sd          the schema <name>_<bundle id>, to be stored under schemas/ as <name>_<bundle id>.sd

A document has

    terms    tensor<float>(term{})    t
    dense    tensor<float>(x[N + 1])  [v ‖ b], with an HNSW index where the model has a dense part
    words    weightedset<int>         the positive entries of t in integers, candidates of the fast mode
    id, fields                        the document's id, and the stored fields as JSON text
    stored_…                          stored fields of one kind as attributes, for filters

The rank profile `fullrank` computes the exact score in the first phase. Not tested against a server;
docs/guides/connect/engines.md says what was checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle.bundle import Bundle
from fullrank.engines.source import EncodedQuery, Entry, Source, as_json, fields_of
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Int32
from fullrank.storage.files import replace_file, replacing

# Candidates of each side in the fast mode, on each content node.
CANDIDATES = 200
# Weights of a weighted set are integers: this many steps for one unit of a weight.
_STEPS = 1000
_TYPES = {"keyword": "string", "number": "double", "boolean": "bool"}
_PROFILE = "fullrank"


class Queries:
    """Turns query texts into bodies of queries over the exported version of a bundle.

    Example:
        >>> queries = Queries(open_bundle(path))
        >>> found = httpx.post(f"{url}/search/", json=queries.request("red apple", limit=5)).json()
        >>> for hit in found["root"]["children"]:
        ...     print(hit["fields"]["id"], hit["relevance"])
    """

    def __init__(self, bundle: Bundle, name: str | None = None) -> None:
        self._source = Source.of(bundle, name)

    @property
    def schema(self) -> str:
        """The schema of exactly this bundle."""
        return self._source.versioned

    def request(
        self,
        text: str,
        limit: int = 10,
        *,
        offset: int = 0,
        mode: str = "exact",
        filter: str | None = None,
    ) -> dict[str, Any]:
        """Return the body of POST /search/.

        Args:
            mode: "exact" scores every document that the filter leaves; "fast" scores candidates of both sides.
            filter: A condition of YQL, such as 'stored_section = 1'.
        """
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode {mode!r} is neither 'exact' nor 'fast'")
        query = self._source.encode(text)
        where = "true" if mode == "exact" else self._candidates(query)
        condition = where if filter is None else f"({where}) and ({filter})"
        return {
            "yql": f"select id, fields from sources {self.schema} where {condition}",
            "hits": limit,
            "offset": offset,
            "ranking.profile": _PROFILE,
            "ranking.softtimeout.enable": False,
            "input.query(u)": query.dense.tolist(),
            "input.query(s)": _tensor(query.features, query.weights),
        }

    def _candidates(self, query: EncodedQuery) -> str:
        sides = []
        pairs = _steps(query.features, query.weights)
        if pairs:
            listed = ", ".join(f"[{feature}, {steps}]" for feature, steps in pairs)
            sides.append(f"({{targetHits: {CANDIDATES}}}wand(words, [{listed}]))")
        if self._source.n_dense > 1:
            sides.append(f"({{targetHits: {CANDIDATES}}}nearestNeighbor(dense, u))")
        return " or ".join(sides) or "true"


def write_feed(source: Source, file: Path, report: Reporter) -> list[Path]:
    """Write the schema and the feed; each appears when it is complete, the feed last."""
    schema = file.with_name(f"{file.name}.sd")
    with replacing(file) as lines:
        for entries in source.batches(report):
            for entry in entries:
                put = f"id:fullrank:{source.versioned}::{entry.id}"
                lines.write(as_json({"put": put, "fields": _fields(source, entry)}) + "\n")
        # Just before the feed appears, so that a killed export leaves no files of two versions.
        replace_file(schema, schema_text(source))
    return [file, schema]


def schema_text(source: Source) -> str:
    """Return the schema of the documents, with the rank profile of the exact score."""
    name, size = source.versioned, source.n_dense
    stored = "".join(
        f"""
        field stored_{field} type {_type(source, field)} {{
            indexing: attribute
        }}"""
        for field in source.filter_fields
        if _type(source, field)
    )
    index = (
        """
            indexing: attribute | index
            attribute {
                distance-metric: dotproduct
            }
            index {
                hnsw
            }"""
        if size > 1
        else """
            indexing: attribute"""
    )
    return f"""schema {name} {{
    document {name} {{
        field id type string {{
            indexing: attribute | summary
        }}
        field fields type string {{
            indexing: summary
        }}
        field terms type tensor<float>(term{{}}) {{
            indexing: attribute
        }}
        field words type weightedset<int> {{
            indexing: attribute
            attribute: fast-search
        }}
        field dense type tensor<float>(x[{size}]) {{{index}
        }}{stored}
    }}
    rank-profile {_PROFILE} {{
        inputs {{
            query(u) tensor<float>(x[{size}])
            query(s) tensor<float>(term{{}})
        }}
        first-phase {{
            expression: sum(query(s) * attribute(terms)) + sum(query(u) * attribute(dense))
        }}
    }}
}}
"""


def _type(source: Source, name: str) -> str | None:
    field = source.filter_fields[name]
    kind = _TYPES[field.kind]
    if not field.is_list:
        return kind
    return None if kind == "bool" else f"array<{kind}>"


def _fields(source: Source, entry: Entry) -> dict[str, Any]:
    stored = fields_of(entry)
    found: dict[str, Any] = {
        "id": entry.id,
        "fields": entry.fields,
        "terms": {"cells": _cells(entry.features, entry.weights)},
        "words": {str(feature): steps for feature, steps in _steps(entry.features, entry.weights)},
        "dense": {"values": entry.dense},
    }
    for name, field in source.filter_fields.items():
        value = stored.get(name)
        values = value if isinstance(value, list) else [value]
        present = [item for item in values if item is not None]
        if present and _type(source, name) is not None:
            found[f"stored_{name}"] = present if field.is_list else present[0]
    return found


def _cells(features: Int32, weights: Float32) -> dict[str, np.float32]:
    return {str(f): w for f, w in zip(features.tolist(), weights, strict=True)}


def _tensor(features: Int32, weights: Float32) -> str:
    pairs = zip(features.tolist(), weights.tolist(), strict=True)
    return f"{{{','.join(f'{{term:{f}}}:{w!r}' for f, w in pairs)}}}"


def _steps(features: Int32, weights: Float32) -> list[tuple[int, int]]:
    steps = np.rint(weights * _STEPS).astype(np.int64).tolist()
    pairs = zip(features.tolist(), steps, strict=True)
    return [(feature, count) for feature, count in pairs if count > 0]
