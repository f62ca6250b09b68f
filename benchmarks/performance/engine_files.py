"""Exported files as OpenSearch and Vespa store them, read back for benchmarks.performance.engines_export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import scipy.sparse as sp

from fullrank import Bundle
from fullrank.encoding import Float32, Int64


@dataclass(frozen=True)
class Read:
    """What an engine stores of an exported file.

    Attributes:
        ids: Of the documents.
        vectors: float32 (n, F + N + 1), [t ‖ v ‖ b].
        words: float32 (n, F), as the engine stores the words of the fast mode.
        precision: float32 or float64, in which the engine adds up.
    """

    ids: list[str]
    vectors: sp.csr_array[np.float32]
    words: sp.csr_array[np.float32]
    precision: type[np.floating[Any]]

    def scores(self, features: Sequence[int], weights: Sequence[float]) -> npt.NDArray[Any]:
        """Return the scores of all documents, (n,) in the engine's precision."""
        return self._product(self.vectors, features, weights)

    def candidates(
        self, features: Sequence[int], weights: Sequence[float], first_dense: int, count: int
    ) -> Int64:
        """Return the best documents by words and by dense vectors."""
        pairs = list(zip(features, weights, strict=True))
        words = [(feature, weight) for feature, weight in pairs if feature < first_dense]
        dense = [(feature, weight) for feature, weight in pairs if feature >= first_dense]
        sides = [
            self._product(self.words, *zip(*words, strict=True)) if words else None,
            self._product(self.vectors, *zip(*dense, strict=True)),
        ]
        return np.unique(
            np.concatenate([np.argsort(-side)[:count] for side in sides if side is not None])
        )

    def _product(
        self, matrix: sp.csr_array[np.float32], features: Sequence[int], weights: Sequence[float]
    ) -> npt.NDArray[Any]:
        query = np.zeros(matrix.shape[1], self.precision)
        query[list(features)] = weights
        return np.asarray(matrix @ query)


def _matrix(rows: list[tuple[Any, Any]], width: int) -> sp.csr_array[np.float32]:
    indptr = np.cumsum([0, *(len(features) for features, _ in rows)])
    features = np.concatenate([np.asarray(one, np.int64) for one, _ in rows])
    weights = np.concatenate([np.asarray(one, np.float32) for _, one in rows])
    return sp.csr_array((weights, features, indptr), shape=(len(rows), width))


def nine_bits(weights: Float32) -> Float32:
    """Keep the 9 significant bits that Lucene's feature fields keep: the low 15 bits of a float32 are cut."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    return (bits >> 15 << 15).view(np.float32)


def read_opensearch(bundle: Bundle, file: Path) -> Read:
    """Read a bulk file as OpenSearch stores it."""
    ids, vectors, words = [], [], []
    terms, width = bundle.model.n_sparse, bundle.model.n_sparse + bundle.model.n_dense + 1
    with file.open("rb") as lines:
        for action in lines:
            ids.append(orjson.loads(action)["index"]["_id"])
            document = orjson.loads(next(lines))
            packed = np.array(document["vector"], np.int64)
            bits = (packed & 0xFFFFFFFF).astype(np.uint32)
            vectors.append((packed >> 32, bits.view(np.float32)))
            stored = np.array(list(document["words"].values()), np.float32)
            words.append(([int(feature) for feature in document["words"]], nine_bits(stored)))
    return Read(ids, _matrix(vectors, width), _matrix(words, terms), np.float64)


def read_vespa(bundle: Bundle, file: Path) -> Read:
    """Read a feed as Vespa stores it."""
    ids, vectors, words = [], [], []
    terms, dense = bundle.model.n_sparse, bundle.model.n_dense + 1
    with file.open("rb") as lines:
        for line in lines:
            fields = orjson.loads(line)["fields"]
            ids.append(fields["id"])
            cells = fields["terms"]["cells"]
            features = [*map(int, cells), *range(terms, terms + dense)]
            vectors.append((features, [*cells.values(), *fields["dense"]["values"]]))
            words.append(([*map(int, fields["words"])], [*fields["words"].values()]))
    return Read(ids, _matrix(vectors, terms + dense), _matrix(words, terms), np.float32)
