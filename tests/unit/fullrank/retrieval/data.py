"""Random encoded texts, the brute force over them, and comparisons of rankings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fullrank.retrieval import Mask, Ranking, Retriever
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.build import index_in_memory
from fullrank.storage.encoding import Encoded, Rows, concatenate

Float64 = npt.NDArray[np.float64]


def encoded(
    rng: np.random.Generator,
    count: int,
    n_dense: int,
    width: int,
    *,
    scale: float = 1.0,
    density: float = 0.2,
    bias: bool = True,
) -> Encoded:
    """Random texts; some rows are empty, some sparse weights negative."""
    sparse = rng.normal(size=(count, width)) * (rng.random((count, width)) < density)
    sparse = (sparse * scale).astype(np.float32)
    sparse[:: max(1, count // 7)] = 0
    rows, indices = np.nonzero(sparse)
    return Encoded(
        (rng.normal(size=(count, n_dense)) * scale).astype(np.float32),
        Rows(
            np.searchsorted(rows, np.arange(count + 1)).astype(np.int64),
            indices.astype(np.int32),
            sparse[rows, indices].astype(np.float32),
            width,
        ),
        (rng.normal(size=count) * bias).astype(np.float32),
    )


@dataclass(frozen=True)
class Case:
    """Numbers that hypothesis draws and shrinks, and the random search that follows from them."""

    seed: int
    count: int
    n_dense: int
    width: int
    limit: int
    offset: int
    gone: float
    scale: float
    bias: float
    copies: int

    def made(self) -> tuple[np.random.Generator, Encoded, Encoded, npt.NDArray[np.bool_]]:
        """Return the generator, the documents with `copies` of each, three queries, and which documents are deleted."""
        rng = np.random.default_rng(self.seed)
        documents = encoded(rng, self.count, self.n_dense, self.width, scale=self.scale)
        documents = concatenate([documents] * self.copies)
        documents = replace(documents, bias=(documents.bias * self.bias).astype(np.float32))
        scale = min(self.scale, 1e6)
        queries = encoded(rng, 3, self.n_dense, self.width, scale=scale, bias=False)
        return rng, documents, queries, rng.random(len(documents)) < self.gone


def searches(scales: list[float], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    """Ties, duplicates, huge biases, no sparse or no dense side, a limit above the count, all filtered out."""
    usual: dict[str, st.SearchStrategy[Any]] = {
        "seed": st.integers(0, 2**32 - 1), "count": st.integers(1, 90),
        "n_dense": st.integers(0, 9), "width": st.integers(0, 12),
        "limit": st.integers(1, 100), "offset": st.integers(0, 90), "gone": st.floats(0, 1),
        "bias": st.sampled_from([0.0, 1.0, 1e8, 1e30]), "copies": st.integers(1, 4),
    }  # fmt: skip
    return st.builds(Case, scale=st.sampled_from(scales), **(usual | others))


def brute(queries: Encoded, documents: Encoded) -> tuple[Float64, Float64]:
    """Return (dense, lexical) of all pairs from full matrices in float64, sharing no code with the product."""

    def matrix_of(sparse: Rows) -> Float64:
        matrix = np.zeros((len(sparse), sparse.width))
        for i in range(len(sparse)):
            for j in range(int(sparse.indptr[i]), int(sparse.indptr[i + 1])):
                matrix[i, sparse.indices[j]] += float(sparse.values[j])
        return matrix

    dense = queries.dense.astype(np.float64) @ documents.dense.astype(np.float64).T
    return dense, matrix_of(queries.sparse) @ matrix_of(documents.sparse).T


def assert_is_brute_force(
    ranking: Ranking,
    dense: Float64,
    lexical: Float64,
    bias: Float64,
    limit: int,
    offset: int = 0,
    deleted: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Check that a ranking equals brute force, in the order of its own scores; near-ties may swap."""
    rows = np.arange(len(bias)) if deleted is None else np.flatnonzero(~deleted)
    truth = dense + lexical + bias
    assert ranking.total == len(rows)
    assert ranking.certified
    assert len(ranking.rows) == max(0, min(limit, len(rows) - offset))
    assert ranking.rows.dtype == np.int64
    assert len(set(ranking.rows.tolist())) == len(ranking.rows)
    assert set(ranking.rows.tolist()) <= set(rows.tolist())
    tolerance: dict[str, Any] = {
        "rtol": 1e-12,
        "atol": 1e-12 * max(1.0, float(np.abs(truth).max(initial=1))),
    }
    np.testing.assert_allclose(ranking.dense, dense[ranking.rows], **tolerance)
    np.testing.assert_allclose(ranking.lexical, lexical[ranking.rows], **tolerance)
    np.testing.assert_array_equal(ranking.bias, bias[ranking.rows])
    np.testing.assert_array_equal(ranking.scores, ranking.dense + ranking.lexical + ranking.bias)
    # The k-th best score is the k-th best score, whichever of two equals stands there.
    best = -np.sort(-truth[rows])[offset : offset + limit]
    np.testing.assert_allclose(ranking.scores, best, **tolerance)
    assert np.all(np.diff(ranking.scores) <= 0)
    equal = np.diff(ranking.scores) == 0
    assert np.all(np.diff(ranking.rows)[equal] > 0)


def assert_same_bits(a: Ranking, b: Ranking) -> None:
    for name in ("rows", "scores", "dense", "lexical", "bias"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.tobytes() == right.tobytes(), name
    assert (a.total, a.certified) == (b.total, b.certified)


EVERYTHING = Effort(nprobe=10**6, words=10**6, depth=10**6, sparse=10**6, rescored=10**6)


def assert_same(
    documents: Encoded,
    queries: Encoded,
    limit: int,
    *,
    offset: int = 0,
    deleted: Mask | None = None,
) -> None:
    """Check that exact search over an index, of one cell or several, gives the bits of exact search without one."""
    plain = Retriever(documents).search(queries, limit, offset=offset, deleted=deleted)
    for cells in (1, 6):
        retriever = Retriever(documents, None, index_in_memory(documents, cells=cells))
        found = retriever.search(queries, limit, offset=offset, deleted=deleted)
        for a, b in zip(found, plain, strict=True):
            assert a.certified
            assert_same_bits(a, b)


def words_of(documents: Encoded, i: int) -> dict[int, float]:
    _, indices, weights, _ = documents.row(i)
    return dict(zip(indices.tolist(), weights.tolist(), strict=True))


def with_cells(documents: Encoded, effort: Effort) -> Index:
    cells = round(4 * len(documents) ** 0.5)
    return replace(index_in_memory(documents, cells=cells), effort=effort)
