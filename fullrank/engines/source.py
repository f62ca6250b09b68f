"""The documents and queries of a bundle in the form that every engine stores and receives.

score = s·t + u·v + b = s·t + [u ‖ 1]·[v ‖ b]: the bias is one more dense dimension, so an engine needs two vectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import orjson

from fullrank.bundle.bundle import Bundle
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Int32, Int64

BATCH_ROWS = 256
# PostgreSQL cuts names at 63 bytes; a version adds 13.
_MAX_NAME = 45
_VERSION_DIGITS = 12


class Entry(NamedTuple):
    """One document.

    Attributes:
        row: Its row in the bundle; rows ascend by document id.
        fields: Its stored fields as one JSON object.
        features: int32 (nnz,), the sparse features of t, ascending.
        weights: float32 (nnz,), their weights.
        dense: float32 (N + 1,), [v ‖ b].
    """

    row: int
    id: str
    fields: str
    features: Int32
    weights: Float32
    dense: Float32


class EncodedQuery(NamedTuple):
    """One query.

    Attributes:
        features: int32 (nnz,), the sparse features of s, ascending.
        weights: float32 (nnz,), their weights.
        dense: float32 (N + 1,), [u ‖ 1].
    """

    features: Int32
    weights: Float32
    dense: Float32


class FilterField(NamedTuple):
    """A stored field that an engine can filter by: every value of it is of one kind."""

    kind: str
    is_list: bool


@dataclass(frozen=True, eq=False)
class Source:
    """A bundle as an engine stores it.

    Attributes:
        bundle: An opened bundle whose score is an inner product.
        name: The name under which an engine serves the newest version: lower-case letters, digits and "_".
    """

    bundle: Bundle
    name: str

    @staticmethod
    def of(bundle: Bundle, name: str | None = None) -> Source:
        """Check that a bundle can be exported.

        Raises:
            ExportError: The score of its model is no inner product.
        """
        if bundle.model.scorer(bundle.encoded.slice(0, 0)) is not None:
            kind = bundle.model.config["kind"]
            raise ExportError(
                f"{bundle.version}: a model of kind {kind!r} computes its scores itself, and an engine "
                "computes inner products only; export a bundle of another recipe, such as 'clicked'"
            )
        return Source(bundle, identifier(name or bundle.name))

    @property
    def versioned(self) -> str:
        """The name of this version alone: <name>_<first 12 hex digits of the bundle id>."""
        return f"{self.name}_{self.bundle.bundle_id[:_VERSION_DIGITS]}"

    @property
    def n_dense(self) -> int:
        """N + 1, the width of [v ‖ b]."""
        return self.bundle.model.n_dense + 1

    @property
    def n_terms(self) -> int:
        """F, the number of sparse features."""
        return self.bundle.encoded.width

    @cached_property
    def filter_fields(self) -> dict[str, FilterField]:
        """The stored fields that can be filtered by, under the names that every engine accepts."""
        found = {}
        for name, column in self.bundle.columns.by_name.items():
            if len(column.parts) == 1 and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
                [(kind, part)] = column.parts.items()
                found[name] = FilterField(kind, part.indptr is not None)
        return found

    def __len__(self) -> int:
        return len(self.bundle.documents)

    def batches(self, report: Reporter) -> Iterator[list[Entry]]:
        """Yield all documents in the order of their rows, and show the progress."""
        with report.stage("export", len(self)) as stage:
            for start in range(0, len(self), BATCH_ROWS):
                rows = range(start, min(start + BATCH_ROWS, len(self)))
                yield [self._entry(row) for row in rows]
                stage.advance(len(rows))

    def _entry(self, row: int) -> Entry:
        documents = self.bundle.documents
        v, features, weights, bias = self.bundle.encoded.row(row)
        dense = np.append(v, np.float32(bias))
        fields = documents.line(row).rstrip()
        return Entry(row, documents.ids[row], fields, features, weights, dense)

    def encode(self, text: str) -> EncodedQuery:
        """Encode a query by the bundle's model."""
        u, features, weights, _ = self.bundle.encode(text).row(0)
        return EncodedQuery(features, weights, np.append(u, np.float32(1)))

    def joined(self, part: Entry | EncodedQuery) -> tuple[Int64, Float32]:
        """Concatenate the vectors of a document or a query: [t ‖ v ‖ b] or [s ‖ u ‖ 1].

        Returns:
            (features, weights): sparse features below F + N + 1, ascending, and their weights.
        """
        dense = np.arange(self.n_terms, self.n_terms + self.n_dense)
        return np.concatenate([part.features, dense]), np.concatenate([part.weights, part.dense])


def identifier(name: str) -> str:
    """Make a name that every engine accepts: a lower-case letter, then letters, digits and "_".

    Example:
        >>> identifier("Shop.search-EN")
        'shop_search_en'
    """
    found = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_MAX_NAME]
    return found if found[:1].isalpha() else f"b_{found}"


def is_version_of(name: str, found: str) -> bool:
    """Check that a name is that of a version of `name`."""
    return re.fullmatch(f"{re.escape(name)}_[0-9a-f]{{{_VERSION_DIGITS}}}", found) is not None


def outdated(source: Source, previous: str | None, found: list[str]) -> list[str]:
    """Choose the versions to delete after a switch: all except the new one and the one that it replaces.

    Args:
        previous: The version that was served until now; None without one.
    """
    if previous == source.versioned:
        return []
    versions = [name for name in found if is_version_of(source.name, name)]
    return [name for name in versions if name not in (source.versioned, previous)]


def as_json(value: object) -> str:
    """Format JSON; float32 arrays are printed with as few digits as give the same float32."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def fields_of(entry: Entry) -> Mapping[str, Any]:
    """Read the stored fields of a document."""
    found: dict[str, Any] = orjson.loads(entry.fields)
    return found
