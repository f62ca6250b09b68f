"""Random inputs of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fullrank.encoding import Rows

SEEDS = st.integers(0, 2**32 - 1)


def random_rows(rng: np.random.Generator, count: int, width: int) -> Rows:
    """Draw sparse rows, some of them empty."""
    taken = rng.random((count, width)) < rng.choice([0, 0.1, 0.9], size=(count, 1))
    indptr = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(taken)[1].astype(np.int32)
    return Rows(indptr, indices, rng.normal(size=len(indices)).astype(np.float32), width)


def random_index(rng: np.random.Generator, count: int, features: int, width: int) -> Any:
    """Draw codes, scales, bias, posting lists with impacts and limits, and an order of rows."""
    codes = rng.integers(-127, 128, (count, width)).astype(np.int8)
    lists = random_rows(rng, features, count)  # a row a word
    impacts = rng.integers(0, 256, len(lists.indices)).astype(np.uint8)
    limits = np.sort(rng.normal(size=(features, 2)).astype(np.float32), axis=1)
    scales, bias = rng.random((2, count)).astype(np.float32)
    return codes, scales, bias, lists, impacts, limits, rng.permutation(count).astype(np.int32)


def contributions(
    lists: Rows, impacts: np.ndarray, limits: np.ndarray, words: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return Σ s_w t̂_wd of all slots, float64."""
    total = np.zeros(lists.width)
    for word, weight in zip(words.tolist(), weights.tolist(), strict=True):
        entries = slice(lists.indptr[word], lists.indptr[word + 1])
        low, high = limits[word].astype(np.float64)
        np.add.at(
            total, lists.indices[entries], weight * (low + (high - low) / 255 * impacts[entries])
        )
    return total
