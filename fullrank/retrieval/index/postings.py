"""word → documents, each with an impact of eight bits.

    rows      ascending inside a word
    t̂_wd     = low_w + step_w · impact        step_w = (high_w − low_w) / 255

low and high are the least and the largest weight of a word among the documents that have it, so a word that weighs the
same in all of them is exact, and |s_w t_wd − s_w t̂_wd| ≤ |s_w| step_w / 2.

A word of a long list costs much to add and, when it weighs little, decides little. ``Postings.plan`` puts such words
last; those never added are bounded by what they could bring, from min(0, s_w low_w) to max(0, s_w high_w) each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import Create

UInt8 = npt.NDArray[np.uint8]

_LEVELS = 255
# Entries that are moved at a time while building: 12 bytes each, several times over.
_CHUNK = 1 << 22
# float32 arithmetic of one impact: the look-up's three roundings
_ROUNDING = 4 * 2.0**-24


@dataclass(frozen=True, eq=False)
class Plan:
    """The words of one query that have postings, those first that bring the most for what they cost.

    words    int32 (m,)
    weights  float64 (m,): s_w
    below, above  float64 (m + 1,): what the words from i on can bring at least and at most; 0 at m
    """

    words: Int32
    weights: Float64
    below: Float64
    above: Float64


@dataclass(frozen=True, eq=False)
class Postings:
    """indptr int64 (F + 1,), rows int32 and impacts uint8 (entries,), limits float32 (F, 2): low and high."""

    indptr: Int64
    rows: Int32
    impacts: UInt8
    limits: Float32

    def plan(self, words: Int32, weights: Float32) -> Plan:
        """In which order to add a query's words: by the width of what they can bring, for each posting."""
        count = self.indptr[words + 1] - self.indptr[words]
        words, weights, count = words[count > 0], weights[count > 0], count[count > 0]
        s = weights.astype(np.float64)
        bounds = self.limits[words].astype(np.float64) * s[:, None]
        low = np.minimum(bounds.min(axis=1, initial=np.inf), 0.0)
        high = np.maximum(bounds.max(axis=1, initial=-np.inf), 0.0)
        order = np.argsort((low - high) / count, kind="stable")
        return Plan(words[order], s[order], _after(low[order]), _after(high[order]))

    def error(self, words: Int32, weights: Float64) -> float:
        """Σ |s_w| step_w / 2: how far the impacts of these words may be from their weights."""
        limits = self.limits[words].astype(np.float64)
        size = np.abs(limits).max(axis=1, initial=0.0)
        step = (limits[:, 1] - limits[:, 0]) / _LEVELS
        return float(np.sum(np.abs(weights) * (step / 2 + _ROUNDING * size)))

    def add(self, word: int, weight: float, scores: Float32) -> None:
        """scores[d] += s_w t̂_wd for the documents of a word."""
        start, stop = self.indptr[word], self.indptr[word + 1]
        values = self._table(word, weight)[self.impacts[start:stop]]
        np.add.at(scores, self.rows[start:stop], values)

    def _table(self, word: int, weight: float) -> Float32:
        """s_w t̂ of each impact, float32 (256,)."""
        low, high = self.limits[word].tolist()
        values = (low + (high - low) / _LEVELS * _STEPS) * weight
        return np.asarray(values, np.float32)


_STEPS = np.arange(_LEVELS + 1, dtype=np.float64)


def _after(values: Float64) -> Float64:
    """Sums of the values from i on, (m + 1,)."""
    sums = np.zeros(len(values) + 1)
    sums[:-1] = np.cumsum(values[::-1])[::-1]
    return sums


def build_postings(documents: Encoded, create: Create, progress: Progress = silent) -> Postings:
    """Turn documents → words round, a chunk of documents at a time.

    The entries of a chunk go behind those of earlier documents, word by word, so that rows ascend without a sort of
    the whole. Twice over the documents: the limits are known before the first impact is written.
    """
    width, entries = documents.width, len(documents.indices)
    counts = np.zeros(width, np.int64)
    limits = create("limits", (width, 2), np.float32)
    low, high = np.full(width, np.inf, np.float32), np.full(width, -np.inf, np.float32)
    for first, last in _chunks(documents.indptr):
        words, weights = np.asarray(documents.indices[first:last]), documents.weights[first:last]
        counts += np.bincount(words, minlength=width)
        np.minimum.at(low, words, weights)
        np.maximum.at(high, words, weights)
        progress("postings", last, 2 * entries)
    limits[:, 0] = np.where(counts > 0, low, 0)
    limits[:, 1] = np.where(counts > 0, high, 0)
    indptr = create("postings.indptr", (width + 1,), np.int64)
    np.cumsum(counts, out=indptr[1:])

    rows = create("postings.rows", (entries,), np.int32)
    impacts = create("postings.impacts", (entries,), np.uint8)
    step = np.maximum(limits[:, 1].astype(np.float64) - limits[:, 0], 0) / _LEVELS
    following = np.array(indptr[:-1])
    for first, last in _chunks(documents.indptr):
        words, weights = np.asarray(documents.indices[first:last]), documents.weights[first:last]
        owner = np.searchsorted(documents.indptr, np.arange(first, last), side="right") - 1
        order = np.argsort(words, kind="stable")
        words = words[order]
        found, begin, many = np.unique(words, return_index=True, return_counts=True)
        place = following[words] + np.arange(len(words)) - np.repeat(begin, many)
        rows[place] = owner[order]
        above = weights[order].astype(np.float64) - limits[words, 0]
        share = np.divide(above, step[words], out=np.zeros(len(words)), where=step[words] > 0)
        impacts[place] = np.clip(np.rint(share), 0, _LEVELS).astype(np.uint8)
        following[found] += many
        progress("postings", entries + last, 2 * entries)
    return Postings(indptr, rows, impacts, limits)


def _chunks(indptr: Int64) -> list[tuple[int, int]]:
    """Bounds of entries, whole documents each, of about _CHUNK entries."""
    ends = np.searchsorted(indptr, np.arange(_CHUNK, indptr[-1] + _CHUNK, _CHUNK), side="left")
    bounds = np.unique(np.concatenate([[0], indptr[np.minimum(ends, len(indptr) - 1)]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
