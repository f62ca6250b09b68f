"""Projections by eigenvectors: LSA, cross-language LSA and oriented principal components.

Queries and documents are rows of one space of F words, x ∈ R^F. With Cov the covariance of rows and N = ``dimension``,
the columns of A, float32 (F, N), are the eigenvectors of the largest eigenvalues of

    lsa      Cov(queries and documents as separate texts) v = μ v
    cl-lsa   Cov(q + d of each pair) v = μ v
    opca     Cov(queries and documents) v = μ (Σ_noise + γ I) v         Σ_noise = mean over pairs of (q − d)(q − d)ᵀ

(Gao, Toutanova, Yih 2011, §2.3 and 5.4; Platt, Toutanova, Yih 2010). No covariance matrix is formed: a
linear operator multiplies a vector by sparse rows and by their transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg, eigsh

from fullrank.encoding import Float32, Float64, Int64, Rows
from fullrank.errors import TrainingError
from fullrank_trainer.features.matrices import Features

Matrix: TypeAlias = sp.csr_array[np.float64]

_SOLVED = 1e-6  # relative residual of each solve with Σ_noise + γ I
_CONVERGED = 1e-4  # relative error of OPCA's eigenvalues


@dataclass(frozen=True, eq=False)
class Space:
    """Training queries and all documents as rows over the same F columns.

    Attributes:
        queries, documents: float64 (Q, F), (D, F), unit vectors.
        query_of, document_of: int64 (pairs,), the two rows of each pair.
        mates: int64 (Q,), the document that each query is or describes; -1 if none.
        query_columns: number of columns of the queries' own vocabulary, which come first. 0 if both sides share one
            vocabulary; otherwise a word of both sides has two columns.
        source: the qrels file, for error messages.
    """

    queries: Matrix
    documents: Matrix
    query_of: Int64
    document_of: Int64
    mates: Int64
    query_columns: int
    source: str = "qrels/train.tsv"

    @property
    def width(self) -> int:
        """F, the number of columns."""
        return int(self.documents.shape[1])

    def texts(self) -> LinearOperator:
        """Return queries and documents, (Q + D, F). A document that is a query counts twice."""
        return aslinearoperator(sp.vstack([self.queries, self.documents], "csr"))

    def require_pairs(self) -> None:
        """Raise TrainingError if there is no pair."""
        if not len(self.query_of):
            raise TrainingError(
                f"{self.source}: no pair to learn from. Add judgements of known documents, or "
                "leave out --recipe: the default needs none"
            )

    def pairs(self, sign: float) -> LinearOperator:
        """Return q + sign · d of each pair, (pairs, F). Raises TrainingError if there is no pair."""
        self.require_pairs()
        q = self._selector(self.query_of, self.queries.shape[0])
        d = self._selector(self.document_of, self.documents.shape[0])
        Q, D = self.queries, self.documents
        qT, dT, QT, DT = (matrix.T.tocsr() for matrix in (q, d, Q, D))
        return LinearOperator(
            (len(self.query_of), self.width),
            matvec=lambda v: _chain(v, Q, q) + sign * _chain(v, D, d),
            rmatvec=lambda w: _chain(w, qT, QT) + sign * _chain(w, dT, DT),
            dtype=np.float64,
        )

    @staticmethod
    def _selector(rows: Int64, count: int) -> Matrix:
        """Return the (pairs, count) matrix that selects the row of each pair."""
        ones, indptr = np.ones(len(rows)), np.arange(len(rows) + 1)
        return sp.csr_array((ones, rows, indptr), shape=(len(rows), count))

    def variances(self) -> Float64:
        """Return the mean of q_w² + d_w² over pairs, (F,): the diagonal of Σ_noise if no pair shares a word."""
        total = np.zeros(self.width)
        for rows, of in ((self.queries, self.query_of), (self.documents, self.document_of)):
            total += rows.power(2).T @ np.bincount(of, minlength=rows.shape[0])
        return total / len(self.query_of)

    def known(self) -> Int64:
        """Return the keys query · D + document of all pairs and mates, which are no negatives."""
        described = np.flatnonzero(self.mates >= 0)
        count = self.documents.shape[0]
        pairs = self.query_of * count + self.document_of
        return np.union1d(pairs, described * count + self.mates[described])

    def tables(self, A: Float32) -> tuple[Float32, Float32]:
        """Return U and V: the rows of A for the words of queries and of documents."""
        n = self.query_columns
        return (A[:n], A[n:]) if n else (A, A)


def space_of(features: Features, pairs: str = "judged") -> Space:
    """Make the space of a recipe's features.

    Args:
        features: of the model.
        pairs: "judged": each training query with each of its judged documents; "mates": with the document it describes.
    """
    queries = features.pairs.queries
    if pairs == "mates":
        query_of = np.flatnonzero(features.mates[queries] >= 0)
        document_of = features.mates[queries][query_of]
    else:
        starts, document_of = features.pairs.relevant.take(queries)
        query_of = np.repeat(np.arange(len(queries)), np.diff(starts))
    own = 0 if features.settings.tied else features.xq.width
    width = own + features.xd.width
    return Space(
        _shifted(features.xq.take(queries), width, 0),
        _shifted(features.xd.composed(), width, own),
        query_of.astype(np.int64),
        document_of.astype(np.int64),
        features.mates[queries],
        own,
        features.pairs.source,
    )


def _chain(v: Float64, first: Matrix, second: Matrix) -> Float64:
    """Return second · first · v."""
    return np.asarray(second @ (first @ v.ravel()), np.float64)


def _shifted(rows: Rows, width: int, shift: int) -> Matrix:
    """Shift all columns to the right and set the width."""
    values = rows.values.astype(np.float64)
    return sp.csr_array((values, rows.indices + shift, rows.indptr), shape=(len(rows), width))


def lsa(space: Space, dimension: int, seed: int) -> Float32:
    """Compute A by principal components of queries and documents as separate texts; float32 (F, N)."""
    return _largest(_covariance(space.texts(), dimension), dimension, seed)


def cl_lsa(space: Space, dimension: int, seed: int) -> Float32:
    """Compute A by principal components of q + d over the pairs; float32 (F, N)."""
    return _largest(_covariance(space.pairs(1), dimension), dimension, seed)


def opca(space: Space, dimension: int, seed: int, noise: float) -> Float32:
    """Compute A by oriented principal components; γ is ``noise`` times the mean of ``Space.variances``."""
    apart = space.pairs(-1)
    variances = space.variances()
    gamma = noise * variances.mean()
    shape = (space.width, space.width)
    noise_matrix = LinearOperator(
        shape,
        matvec=lambda v: apart.rmatvec(apart.matvec(v)) / apart.shape[0] + gamma * v.ravel(),
        dtype=np.float64,
    )
    # Precondition: frequent words vary a thousand times more than rare ones, so solves converge faster.
    near = LinearOperator(shape, matvec=lambda v: v.ravel() / (variances + gamma), dtype=np.float64)
    solved = LinearOperator(
        shape,
        matvec=lambda b: cg(noise_matrix, b.ravel(), rtol=_SOLVED, M=near)[0],
        dtype=np.float64,
    )
    signal = _covariance(space.texts(), dimension)
    return _largest(signal, dimension, seed, M=noise_matrix, Minv=solved, tol=_CONVERGED)


def _covariance(X: LinearOperator, dimension: int) -> LinearOperator:
    """Return v ↦ Xᵀ(Xv)/n − m (m·v), m the mean row. Raises TrainingError if X is too small."""
    n, width = X.shape
    if dimension >= min(n, width):
        raise TrainingError(
            f"model.dimension: {dimension} must be below {min(n, width)}, "
            "the smaller of the number of texts and of words"
        )
    m = X.rmatvec(np.ones(n)) / n
    return LinearOperator(
        (width, width),
        matvec=lambda v: X.rmatvec(X.matvec(v.ravel())) / n - m * float(m @ v.ravel()),
        dtype=np.float64,
    )


def _largest(operator: LinearOperator, dimension: int, seed: int, **generalised: Any) -> Float32:
    """Return the eigenvectors of the largest eigenvalues, largest first, float32 (F, N)."""
    first = np.random.default_rng(seed).standard_normal(operator.shape[0])
    _, vectors = eigsh(operator, k=dimension, v0=first, **generalised)
    return np.ascontiguousarray(vectors[:, ::-1], np.float32)
