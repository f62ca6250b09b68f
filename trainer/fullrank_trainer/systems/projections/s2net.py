"""S2Net: learn A so that a query is nearer to its own documents than to others    Gao, Toutanova, Yih 2011, §4

    L = log(1 + exp(−γΔ))        Δ = cos(Aᵀq, Aᵀd⁺) − cos(Aᵀq, Aᵀd⁻)        mean over pairs and their random d⁻

With y = Aᵀx of a text, ŷ = y/‖y‖ and h = ∂L/∂Δ = −γ / (1 + e^{γΔ}) of a triple,

    ∂L/∂ŷ_q = Σ h (ŷ₊ − ŷ₋)        ∂L/∂ŷ₊ = Σ h ŷ_q        ∂L/∂ŷ₋ = −Σ h ŷ_q
    ∂L/∂y = (∂L/∂ŷ − (ŷ·∂L/∂ŷ) ŷ) / ‖y‖                    ∂L/∂A = Σ_texts x (∂L/∂y)ᵀ

A starts from LSA. Each epoch draws new d⁻ and takes a few L-BFGS iterations over all pairs. The epoch with the best
validation MAP wins.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from fullrank.encoding import Encoded, Float32, Float64, Int64, Rows
from fullrank.errors import TrainingError
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.projections import components
from fullrank_trainer.systems.projections.components import Space
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import RestoresInPlace
from fullrank_trainer.training.validation import Validation

_DEPTH = 100  # documents per query that the MAP of early stopping reads
_SCALE = 10.0  # γ, the factor on a difference of cosines
_ITERATIONS = 10  # of L-BFGS in an epoch
_LBFGS_HISTORY = 5  # steps that L-BFGS stores


def loss_and_gradient(
    Y: Float32, queries: Int64, candidates: Int64, scale: float
) -> tuple[float, Float32]:
    """Compute L over pairs, and ∂L/∂Y.

    Args:
        Y: float32 (texts, N), Aᵀx of every text; a zero row has cosine 0 with all and no gradient.
        queries: int64 (B,), rows of Y.
        candidates: int64 (B, 1 + K), rows of Y, d⁺ first.
        scale: γ.
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
    """Learns A, float32 (F, N), under the loss above.

    Raises:
        TrainingError: no pair is judged, or every query judges the whole collection.
    """

    def __init__(
        self, features: Features, space: Space, recipe: Recipe, rng: np.random.Generator, seed: int
    ) -> None:
        self.features, self.space, self.rng = features, space, rng
        self.others = recipe.projection.others
        # With two vocabularies, queries and documents share components only if pairs are added up.
        begin = components.cl_lsa if space.query_columns else components.lsa
        self.A = begin(space, recipe.model.dimension, seed)
        # The cosine does not depend on A's scale, but a step does: rows start at a norm of about 1.
        self.A /= np.sqrt(np.mean(np.sum(np.square(self.A), axis=1)))
        self.texts = Rows.from_csr(sp.csr_array(sp.vstack([space.queries, space.documents], "csr")))
        self.known = space.known()
        self.pairs = self._usable()
        self.per_epoch = len(self.pairs)

    def _usable(self) -> Int64:
        """Return the pairs whose query has a negative, int64 (pairs,)."""
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

    def prepare(self) -> None:
        """Do nothing: there is no choice to make."""

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the pairs, each with new negatives."""
        queries = self.space.query_of[self.pairs]
        documents = np.column_stack([self.space.document_of[self.pairs], self._negatives(queries)])
        yield len(queries), self._descend(queries, documents)

    def _negatives(self, queries: Int64) -> Int64:
        """Draw documents that are neither judged nor mates of the query, int64 (B, K)."""
        count = self.features.documents
        drawn = self.rng.integers(0, count, (len(queries), self.others))
        while True:
            keys = queries[:, None] * count + drawn
            place = np.minimum(np.searchsorted(self.known, keys), len(self.known) - 1)
            wrong = self.known[place] == keys
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
        """Return the MAP of the cosine alone on validation."""
        U, V = self.space.tables(self.A)
        queries = _encoded(embed(self.features.xq.take(valid.rows), np.ascontiguousarray(U)))
        documents = _encoded(embed(self.features.xd.composed(), np.ascontiguousarray(V)))
        return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)

    def parameters(self) -> Arrays:
        """Return A."""
        return {"A": self.A}

    def state(self) -> Arrays:
        """Return nothing: L-BFGS starts anew in each epoch."""
        return {}


def _encoded(Y: Float32) -> Encoded:
    return Encoded.from_rows(Rows.empty(len(Y), 0), _unit(Y)[0])
