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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg, eigsh, svds
from scipy.special import expit

from fullrank.errors import TrainingError
from fullrank.models.linear import DenseSide, LinearModel
from fullrank.storage.encoding import Encoded, Float32, Float64, Int64, Rows
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.parameters import fitted_linear, start
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import RestoresInPlace, TrainingRun
from fullrank_trainer.training.validation import Validation


@dataclass(frozen=True)
class ProjectionSettings:
    """A projection: f(q, d) = cos(Aᵀq, Aᵀd)."""

    # how to find A: principal components of texts ("lsa"), of pairs ("cl-lsa"), against noise ("opca"), or learned
    method: str = setting("lsa", choices=("lsa", "cl-lsa", "opca", "s2net"))
    # a pair is a query and a judged document, or a query and the document it describes
    pairs: str = setting("judged", choices=("judged", "mates"))


Matrix: TypeAlias = sp.csr_array[np.float64]

_SOLVED = 1e-6  # relative residual of each solve with Σ_noise + γ I
_CONVERGED = 1e-4  # relative error of OPCA's eigenvalues


@dataclass(frozen=True, eq=False)
class Space:
    """Training queries and all documents as rows over the same F columns.

    Attributes:
        queries, documents: float64 (Q, F), (D, F), unit vectors.
        query_columns: number of columns of the queries' own vocabulary, which come first. 0 if both sides share one
            vocabulary; otherwise a word of both sides has two columns.
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
        return int(self.documents.shape[1])

    def texts(self) -> LinearOperator:
        """Return queries and documents, (Q + D, F). A document that is a query counts twice."""
        return aslinearoperator(sp.vstack([self.queries, self.documents], "csr"))

    def require_pairs(self) -> None:
        if not len(self.query_of):
            raise TrainingError(
                f"{self.source}: no pair to learn from. Add judgements of known documents, or "
                "leave out --recipe: the default needs none"
            )

    def pairs(self, sign: float) -> LinearOperator:
        """Return q + sign · d of each pair, (pairs, F). Raises TrainingError if there is no pair."""
        self.require_pairs()
        (q, Q), (d, D) = (
            (sp.eye_array(matrix.shape[0], format="csr")[rows], matrix)
            for rows, matrix in ((self.query_of, self.queries), (self.document_of, self.documents))
        )
        qT, dT, QT, DT = (matrix.T.tocsr() for matrix in (q, d, Q, D))
        return LinearOperator(
            (len(self.query_of), self.width),
            matvec=lambda v: _chain(v, Q, q) + sign * _chain(v, D, d),
            rmatvec=lambda w: _chain(w, qT, QT) + sign * _chain(w, dT, DT),
            dtype=np.float64,
        )

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
    """Make the space of a recipe's features; pairs are "judged", or "mates": a query with the document it describes."""
    queries = features.pairs.queries
    if pairs == "mates":
        query_of = np.flatnonzero(features.mates[queries] >= 0)
        document_of = features.mates[queries][query_of]
    else:
        starts, document_of = features.pairs.take(queries)
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
    return np.asarray(second @ (first @ v.ravel()), np.float64)


def _shifted(rows: Rows, width: int, shift: int) -> Matrix:
    values = rows.values.astype(np.float64)
    return sp.csr_array((values, rows.indices + shift, rows.indptr), shape=(len(rows), width))


def lsa(space: Space, dimension: int, seed: int) -> Float32:
    """Compute A by principal components of queries and documents as separate texts; float32 (F, N)."""
    return _largest(_covariance(space.texts(), dimension), dimension, seed)


def cl_lsa(space: Space, dimension: int, seed: int) -> Float32:
    """Compute A by principal components of q + d over the pairs; float32 (F, N)."""
    return _largest(_covariance(space.pairs(1), dimension), dimension, seed)


def opca(space: Space, dimension: int, seed: int, noise: float = 1.0) -> Float32:
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


# S2Net: learn A so that a query is nearer to its own documents than to others    Gao, Toutanova, Yih 2011, §4
#
#     L = log(1 + exp(−γΔ))        Δ = cos(Aᵀq, Aᵀd⁺) − cos(Aᵀq, Aᵀd⁻)        mean over pairs and their random d⁻
#
# With y = Aᵀx of a text, ŷ = y/‖y‖ and h = ∂L/∂Δ = −γ / (1 + e^{γΔ}) of a triple,
#
#     ∂L/∂ŷ_q = Σ h (ŷ₊ − ŷ₋)        ∂L/∂ŷ₊ = Σ h ŷ_q        ∂L/∂ŷ₋ = −Σ h ŷ_q
#     ∂L/∂y = (∂L/∂ŷ − (ŷ·∂L/∂ŷ) ŷ) / ‖y‖                    ∂L/∂A = Σ_texts x (∂L/∂y)ᵀ
#
# A starts from LSA. Each epoch draws new d⁻ and takes a few L-BFGS iterations over all pairs. The epoch with the best
# validation MAP wins.


_SCALE = 10.0  # γ, the factor on a difference of cosines
_OTHERS = 4  # random other documents for each pair, a new sample each epoch
_ITERATIONS = 10  # of L-BFGS in an epoch
_LBFGS_HISTORY = 5  # steps that L-BFGS stores


def loss_and_gradient(
    Y: Float32, queries: Int64, candidates: Int64, scale: float
) -> tuple[float, Float32]:
    """Compute L over pairs, and ∂L/∂Y.

    Args:
        Y: float32 (texts, N), Aᵀx of every text; a zero row has cosine 0 with all and no gradient.
        candidates: int64 (B, 1 + K), rows of Y, d⁺ first.
    """
    unit, inverse = _unit(Y)
    cosine = np.einsum("bn,bkn->bk", unit[queries], unit[candidates]).astype(np.float64)
    delta = scale * (cosine[:, :1] - cosine[:, 1:])
    h = -scale * expit(-delta) / delta.size
    # ∂L/∂cos of each query with each of its candidates.
    weights = np.concatenate([h.sum(axis=1, keepdims=True), -h], axis=1).astype(np.float32)
    texts, per = len(Y), candidates.shape[1]
    pulls = sp.csr_array(
        (weights.ravel(), (np.repeat(queries, per), candidates.ravel())), shape=(texts, texts)
    )
    of_unit = np.asarray(pulls @ unit + pulls.T @ unit)
    along = np.einsum("tn,tn->t", unit, of_unit)[:, None]
    gradient = (of_unit - along * unit) * inverse[:, None]
    return float(np.logaddexp(0, -delta).mean()), gradient.astype(np.float32, copy=False)


def _unit(Y: Float32) -> tuple[Float32, Float32]:
    """Return Ŷ and 1/‖y‖; both are zero for a zero row."""
    norm = np.sqrt(np.einsum("tn,tn->t", Y, Y))
    inverse = np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)
    return Y * inverse[:, None], inverse


def embed(x: Rows, A: Float32) -> Float32:
    """Return Aᵀx of every row, float32 (B, N)."""
    out = np.empty((len(x), A.shape[1]), np.float32)
    kernels.embed(x.indptr, x.indices, x.values, A, out)
    return out


class S2NetLearner(RestoresInPlace):
    """Learns A, float32 (F, N), under the loss above. Raises TrainingError without a pair or a negative."""

    def __init__(
        self, features: Features, space: Space, recipe: Recipe, rng: np.random.Generator, seed: int
    ) -> None:
        self.features, self.space, self.rng = features, space, rng
        # With two vocabularies, queries and documents share components only if pairs are added up.
        begin = cl_lsa if space.query_columns else lsa
        self.A = begin(space, recipe.model.dimension, seed)
        # The cosine does not depend on A's scale, but a step does: rows start at a norm of about 1.
        self.A /= np.sqrt(np.mean(np.sum(np.square(self.A), axis=1)))
        self.texts = Rows.from_csr(sp.csr_array(sp.vstack([space.queries, space.documents], "csr")))
        self.known = space.known()
        self.pairs = self._usable()
        self.per_epoch = len(self.pairs)

    def _usable(self) -> Int64:
        self.space.require_pairs()
        own = np.bincount(
            self.known // self.features.documents, minlength=self.space.queries.shape[0]
        )
        usable = np.flatnonzero(own[self.space.query_of] < self.features.documents)
        if not len(usable):
            raise TrainingError(
                "no pair has a negative to learn from: every query judges the whole collection"
            )
        return usable

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        queries = self.space.query_of[self.pairs]
        documents = np.column_stack([self.space.document_of[self.pairs], self._negatives(queries)])
        yield len(queries), self._descend(queries, documents)

    def _negatives(self, queries: Int64) -> Int64:
        """Draw documents that are neither judged nor mates of the query, int64 (B, K)."""
        count = self.features.documents
        drawn = self.rng.integers(0, count, (len(queries), _OTHERS))
        while True:
            wrong = np.isin(queries[:, None] * count + drawn, self.known)
            if not wrong.any():
                return drawn
            drawn[wrong] = self.rng.integers(0, count, int(wrong.sum()))

    def _descend(self, queries: Int64, documents: Int64) -> float:
        """Take a few L-BFGS iterations over all pairs; return the final loss."""
        x, candidates = self.texts.csr(), documents + self.space.queries.shape[0]
        transposed = x.T.tocsr()

        def objective(flat: Float64) -> tuple[float, Float64]:
            A = flat.reshape(self.A.shape).astype(np.float32)
            Y = embed(self.texts, A)
            loss, gradient = loss_and_gradient(Y, queries, candidates, _SCALE)
            return loss, np.asarray(transposed @ gradient, np.float64).ravel()

        # Imported here: scipy.optimize takes 17 MiB of every process.
        from scipy.optimize import minimize

        found = minimize(
            objective,
            self.A.astype(np.float64).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS, "maxcor": _LBFGS_HISTORY},
        )
        self.A[...] = found.x.reshape(self.A.shape)
        return float(found.fun)

    def measure(self, valid: Validation) -> float:
        U, V = self.space.tables(self.A)
        queries = _encoded(embed(self.features.xq.take(valid.rows), np.ascontiguousarray(U)))
        documents = _encoded(embed(self.features.xd.composed(), np.ascontiguousarray(V)))
        return valid.map_of([documents], queries)

    def parameters(self) -> Arrays:
        return {"A": self.A}

    def state(self) -> Arrays:
        return {}  # L-BFGS starts anew in each epoch


def _encoded(Y: Float32) -> Encoded:
    return Encoded.from_rows(Rows.empty(len(Y), 0), _unit(Y)[0])


def _found(
    context: TrainingContext, recipe: Recipe, space: Space, run: TrainingRun
) -> tuple[Float32, dict[str, Any]]:
    """Return A, and facts for the model card."""
    if recipe.own.method != "s2net":
        find = {"lsa": lsa, "cl-lsa": cl_lsa, "opca": opca}[recipe.own.method]
        return find(space, recipe.model.dimension, context.seed), {}
    features, rng = context.features(recipe.model), np.random.default_rng(context.seed)
    learner = S2NetLearner(features, space, recipe, rng, context.seed)
    facts = run.learn(learner)
    return learner.A, facts


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a projection recipe. Raises TrainingError if there are too few texts or pairs."""
    features = context.features(recipe.model)
    space = space_of(features, recipe.own.pairs)
    # A does not depend on the time limit, which differs between the trials of a search.
    train = replace(recipe.train, seconds=0.0)
    key = ("projection", replace(recipe.model, alpha=1.0), recipe.own, train)
    A, facts = context.cached(key, lambda: _found(context, recipe, space, run))
    U, V = space.tables(A)
    return _projected(context, recipe, compile_projection(features, V, U), facts)


def _projected(
    context: TrainingContext, recipe: Recipe, model: LinearModel, facts: dict[str, Any]
) -> FittedModel:
    features = context.features(recipe.model)
    nothing = start(features, recipe.train, np.random.default_rng(context.seed))
    return fitted_linear(features, model, nothing, facts)


# Latent semantic indexing: a truncated singular value decomposition of the documents.
#
# X ≈ A Σ Bᵀ for the (documents, words) matrix X of unit tf-idf vectors; a text x maps to Bᵀx, divided by its norm, so
# u·v is the cosine of the projections. Mixed with tf-idf: f = α cos(Bᵀq, Bᵀd) + (1 − α) q·d.


def singular_vectors(features: Features, seed: int) -> Float32:
    """Compute B, float32 (words, N): right singular vectors of the largest singular values. Raises TrainingError."""
    matrix = features.xd.composed().csr()
    dimension = features.settings.dimension
    if dimension >= min(matrix.shape):
        raise TrainingError(
            f"model.dimension: {dimension} must be below {min(matrix.shape)}, "
            "the smaller side of the documents' matrix"
        )
    first = np.random.default_rng(seed).standard_normal(min(matrix.shape)).astype(np.float32)
    *_, vt = svds(matrix, k=dimension, v0=first, solver="arpack")
    return np.ascontiguousarray(vt[::-1].T, np.float32)


def compile_projection(features: Features, V: Float32, U: Float32 | None = None) -> LinearModel:
    """Make the model of a projection; ``alpha`` weighs it against the lexical part, if there is one.

    Without U a query word has its row of V, or zeros if V has none.
    """
    settings, model = features.settings, features.model
    mixed = settings.match != "none"
    share = settings.alpha if mixed else 1.0
    if U is None:
        place = model.document.words.rows(model.query.words.words)
        U = np.where(place[:, None] >= 0, V[place], np.float32(0))
    return replace(
        model,
        settings={**model.settings, "dense_scale": share},
        query=_with_table(model.query, U),
        document=_with_table(model.document, V),
        sparse=replace(model.sparse, D=model.sparse.D * np.float32(1 - share)),
    )


def _with_table(side: DenseSide, table: Float32) -> DenseSide:
    letters = np.zeros((len(side.trigrams), table.shape[1]), np.float32)
    return replace(side, table=np.ascontiguousarray(table), trigram_table=letters)


# Laplacian eigenmaps with their out-of-sample extension: Belkin and Niyogi 2003; Bengio et al. 2003.
#
#     minimise Σ_ij K_ij ‖z_i − z_j‖²        K ≥ 0 symmetric, the similarity of nodes; d_i = Σ_j K_ij
#
# The coordinates are eigenvectors e of S = D^−½ K D^−½ (normalised Laplacian: I − S) with the largest eigenvalues μ
# below the trivial one, whose eigenvector is √d, and z_i = e_i / √d_i. For a new x the Nyström formula
# e(x) = (1/μ) Σ_i S(x, y_i) e_i gives, with d(x) = Σ_i K(x, y_i),
#
#     z(x) = (1/μ) Σ_i K(x, y_i) z_i / d(x)        the mean of its neighbours' coordinates, each over its μ
#
# For nodes of the graph the formula is exact: z(y_i) = z_i.


def _signed(columns: Float64) -> Float64:
    """Make the largest entry of each column positive, because an eigenvector's sign is arbitrary."""
    largest = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
    return columns * np.where(largest < 0, -1.0, 1.0)


def cosine_projection(x: sp.csr_array[np.float32], dimension: int, *, seed: int = 1) -> Float32:
    """Compute eigenmaps of texts under K(x, y) = φ(x)·φ(y), as the (words, N) matrix P of their extension.

    The cosine of two texts is their similarity, so K(x, y_i) is linear in φ(x):

    S = A Aᵀ, A = D^−½ Φ = E Σ Rᵀ, μ = σ²        d_i = φ(y_i) · Σ_j φ(y_j)
    e(x) = (1/μ) Σ_i S(x, y_i) e_i = φ(x)ᵀ R Σ⁻¹ / √d(x)            so P = R Σ⁻¹

    The factor 1/√d(x) does not change a cosine. No (m, m) matrix is formed.
    """
    full = x[np.flatnonzero(np.diff(x.indptr))].astype(np.float64)
    if dimension + 1 >= min(full.shape):
        raise TrainingError(
            f"model.dimension: {dimension} must be below {min(full.shape) - 1}, "
            "one less than the smaller side of the documents' matrix"
        )
    degree = np.asarray(full @ np.asarray(full.sum(axis=0)).ravel()).ravel()
    A = sp.csr_array(sp.diags_array(degree**-0.5) @ full)
    first = np.random.default_rng(seed).standard_normal(min(A.shape))
    _, values, vt = svds(A, k=dimension + 1, v0=first, solver="arpack")
    order = np.argsort(-values)[1:]
    return np.ascontiguousarray(_signed(vt[order].T) / values[order], np.float32)


def fit_eigenmaps(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a recipe: both sides are projected by P; ``alpha`` mixes the result with tf-idf."""
    features = context.features(recipe.model)
    table = context.cached(
        ("eigenmaps", replace(recipe.model, alpha=1.0)),
        lambda: cosine_projection(
            features.xd.composed().csr(), recipe.model.dimension, seed=context.seed
        ),
    )  # fmt: skip
    return _projected(context, recipe, compile_projection(features, table), {})


SYSTEM = System("projection", fit, section="projection", settings=ProjectionSettings)
EIGENMAPS = System("eigenmaps", fit_eigenmaps)
