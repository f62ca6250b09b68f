"""Planted links follow the planted model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from benchmarks.performance.planted import (
    LINKS_A_QUERY,
    POOL,
    draw_links,
    planted_model,
)
from fullrank.encoding import Float32, Rows
from fullrank.text.features import unit

WORDS, DOCUMENTS, QUERIES = 60, 400, 50


def texts(count: int, words: int, rng: np.random.Generator) -> Rows:
    """Unit rows of a few words each."""
    dense = np.zeros((count, WORDS), np.float32)
    for row in dense:
        row[rng.choice(WORDS, words, replace=False)] = rng.random(words) + 0.5
    return unit(Rows.from_csr(sp.csr_array(dense)))


def scores(queries: Rows, documents: Rows, seed: int) -> Float32:
    """f(q, d) of all pairs, computed densely."""
    U, V, D = planted_model(WORDS, seed)
    q, d = queries.csr().toarray(), documents.csr().toarray()
    return np.asarray((q @ U) @ (d @ V).T + (q * D) @ d.T, np.float32)


def test_a_link_leads_to_the_best_of_a_pool() -> None:
    rng = np.random.default_rng(1)
    queries, documents = texts(QUERIES, 5, rng), texts(DOCUMENTS, 12, rng)
    links = draw_links(queries, documents, seed=3)
    assert links.shape == (QUERIES, LINKS_A_QUERY)
    assert 0 <= links.min() <= links.max() < DOCUMENTS
    found = scores(queries, documents, 3)
    # The best of a pool lies above POOL / (POOL + 1) of its kind in the mean; half of a pool has a word of the query.
    below = np.array([(found[q] < found[q, row][:, None]).mean() for q, row in enumerate(links)])
    assert 1 - 3 / POOL < below.mean() < 1
    assert len(np.unique(links)) > DOCUMENTS / 5
    # Another planted model does not explain these links.
    other = scores(queries, documents, 4)
    wrong = np.mean([(other[q] < other[q, row][:, None]).mean() for q, row in enumerate(links)])
    assert wrong < below.mean() - 0.1


def test_one_seed_draws_the_same_links() -> None:
    rng = np.random.default_rng(1)
    queries, documents = texts(9, 3, rng), texts(30, 8, rng)
    first, again, other = (draw_links(queries, documents, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
