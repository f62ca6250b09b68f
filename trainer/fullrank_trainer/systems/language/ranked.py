"""Train a translation table on what it is for: the ranks of judged documents.

    L = − mean_q log( e^{γ f(q,d) + b_d} / Σ_n e^{γ f(q,n) + b_n} )        d: a judged document, n: it and sampled ones

    f(q, D) = Σ_w n(w) log(1 + c M_w / P(w|C))        M_w = λ₂ P_ml(w|D) + (1 − λ₂) Σ_t P(w|t) P_ml(t|D)
    ∂f/∂P(w|t) = n(w) c (1 − λ₂) P_ml(t|D) / (P(w|C) + c M_w)                               c = (1 − λ₁) / λ₁

P(w|t) = P₀(w|t) e^a starts at the probabilities of EM, and those that are zero stay zero. Then rows sum to no 1.
AdaGrad takes the steps on a, γ and b. Only P is kept: b says how often people ask for a document, which others learn.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Float32, Int32, Int64, Rows
from fullrank.models.language import LanguageModel
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.systems.linear.softmax import choose_candidates, places_of

_BATCH, _CANDIDATES = 256, 1500
_RATE, _SCALE_RATE, _BIAS_RATE = 0.05, 0.05, 0.03
_SCALE = 0.5  # γ at the start


def trained_table(
    model: LanguageModel,
    documents: Rows,
    queries: Rows,
    pairs: Pairs,
    rng: np.random.Generator,
) -> sp.csr_array[np.float32]:
    """Take one pass over the training queries.

    Args:
        model: with the weights that it will serve with.
        documents: P_ml of all documents, (n, W).
        queries: counts of the queries of ``pairs``, in their order.
        pairs: the judged pairs.
        rng: draws candidates.

    Returns:
        P(w|t), a row for each word of queries.
    """
    lambda1, lambda2 = model.settings["lambda1"], model.settings["lambda2"]
    c = np.float32((1 - lambda1) / lambda1)
    table = sp.csr_array(model.translation, copy=True)
    start, steps = table.data.copy(), np.zeros_like(table.data)
    squares, bias = np.zeros_like(steps), np.zeros(len(documents), np.float32)
    bias_squares, scale, scale_squares = np.zeros_like(bias), np.log(_SCALE), 0.0
    share = np.maximum(model.background, np.float32(1e-9))
    order = rng.permutation(len(pairs.queries))
    for first in range(0, len(order), _BATCH):
        chosen = np.sort(order[first : first + _BATCH])
        rows = pairs.queries[chosen]
        known = [pairs.relevant[row] for row in rows.tolist()]
        positives = np.array([rng.choice(found) for found in known])
        candidates = choose_candidates(pairs, rows, positives, pairs.documents, _CANDIDATES, rng)
        asked = queries.take(chosen).csr()
        words = np.unique(asked.indices)
        counts = asked[:, words].toarray()
        own = documents.take(candidates).csr()
        columns = np.unique(own.indices)
        entries, owners, places = _entries(table, words, columns)
        part = sp.csr_array((table.data[entries], (owners, places)), (len(words), len(columns)))
        own_columns = sp.csr_array(own[:, columns])
        mass = (part @ own_columns.T).toarray() * np.float32(1 - lambda2)
        mass += np.float32(lambda2) * own[:, words].toarray().T
        inner = share[words][:, None] + c * mass
        raw = counts @ np.log(inner / share[words][:, None])
        gamma = np.float32(np.exp(scale))
        G = _gradient(gamma * raw + bias[candidates], candidates, positives, known)

        g = float(gamma * np.vdot(G, raw))
        scale_squares += g * g
        scale -= _SCALE_RATE * g / np.sqrt(scale_squares + 1e-9)
        g_bias = G.sum(axis=0)
        bias_squares[candidates] += g_bias * g_bias
        bias[candidates] -= _BIAS_RATE * g_bias / np.sqrt(bias_squares[candidates] + 1e-9)
        by_mass = (counts.T @ G) * (gamma * c * np.float32(1 - lambda2)) / inner
        by_entry = np.asarray((own_columns.T @ by_mass.T).T)[owners, places] * table.data[entries]
        moved = by_entry != 0
        entries, by_entry = entries[moved], by_entry[moved]
        squares[entries] += by_entry * by_entry
        steps[entries] -= _RATE * by_entry / np.sqrt(squares[entries] + 1e-10)
        table.data[entries] = start[entries] * np.exp(steps[entries])
    return table


def _entries(
    table: sp.csr_array[np.float32], words: Int32, columns: Int32
) -> tuple[Int64, Int64, Int64]:
    """Return the entries of a part of the table: their places in it, and their rows and columns in the part."""
    sizes = table.indptr[words + 1] - table.indptr[words]
    owners = np.repeat(np.arange(len(words)), sizes)
    entries = np.arange(sizes.sum()) + np.repeat(
        table.indptr[words] - (np.cumsum(sizes) - sizes), sizes
    )
    place = np.full(table.shape[1], -1, np.int64)
    place[columns] = np.arange(len(columns))
    places = place[table.indices[entries]]
    kept = places >= 0
    return entries[kept], owners[kept], places[kept]


def _gradient(scores: Float32, candidates: Int64, positives: Int64, known: list[Int64]) -> Float32:
    """Return the softmax less 1 for the positive of each query; its other judged documents are left out."""
    own = places_of(candidates, positives)
    for line, place, rows in zip(scores, own.tolist(), known, strict=True):
        others = places_of(candidates, rows)
        line[others[(others >= 0) & (others != place)]] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    G = np.exp(scores)
    G /= G.sum(axis=1, keepdims=True)
    G[np.arange(len(own)), own] -= 1
    return np.asarray(G, np.float32)
