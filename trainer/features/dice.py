"""DICE coefficients: which of the frequent words a word or 2-gram keeps company with.

    DICE(i, j) = 2 · cooccur(i, j) / (occur(i) + occur(j))              Bai et al. 2009, section 2.2.1

occur(i) is the number of contexts (documents, or sentences) that hold i, cooccur(i, j) of those that hold both. The
paper counts co-occurrence by context but may mean occurrences of single words; counting both in contexts keeps the
coefficient what it is, twice the shared part of two sets: at most 1, and 1 only for words that never part. A word
repeated forty times in one article then does not look frequent.

Documents and not pairs of words are walked: a word costs the frequent words of the contexts that hold it, and memory is
one counter per frequent word and thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from numba import njit, prange

from fullrank.encoding import Int32, Int64
from fullrank.features import Rows
from fullrank.text.bigrams import is_bigram

Float64 = npt.NDArray[np.float64]

_CHUNK = 2048  # words between two reports of progress
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """S_p of every word and 2-gram of a collection.

    bins    the F frequent words, most frequent first
    index   word or 2-gram → its row
    places  int32 (words, k): S_1 … S_k as places in ``bins``, -1 where there are fewer
    """

    bins: Sequence[str]
    index: dict[str, int]
    places: Int32


@njit(nogil=True, cache=True)
def _nearest_row(  # type: ignore[no-untyped-def]
    contexts, starts, held, occur, occurs, counts, touched, best, score
):
    """The frequent words of largest DICE with one word, into ``best`` and ``score``; ``counts`` is left zero.

    contexts  those that hold the word; occur: how many they are
    held      the frequent words of context c are held[starts[c]:starts[c + 1]]
    occurs    of each frequent word
    """
    found = 0
    for c in contexts:
        for e in range(starts[c], starts[c + 1]):
            j = held[e]
            if counts[j] == 0:
                touched[found] = j
                found += 1
            counts[j] += 1
    last = len(best) - 1
    best[:] = -1
    score[:] = 0
    for t in range(found):
        j = touched[t]
        dice = 2.0 * counts[j] / (occur + occurs[j])
        counts[j] = 0
        p = last + 1
        while p > 0 and (
            best[p - 1] < 0 or dice > score[p - 1] or (dice == score[p - 1] and j < best[p - 1])
        ):
            if p <= last:
                best[p], score[p] = best[p - 1], score[p - 1]
            p -= 1
        if p <= last:
            best[p], score[p] = j, dice


@njit(parallel=True, nogil=True, cache=True)
def _nearest(  # type: ignore[no-untyped-def]
    wanted, word_starts, contexts, starts, held, occurs, shards, best, scores
):
    """Every wanted word; shard i does every ``shards``-th. Each row is made by one thread alone."""
    for i in prange(shards):
        counts = np.zeros(len(occurs), np.int32)
        touched = np.empty(len(occurs), np.int32)
        for t in range(i, len(wanted), shards):
            a, b = word_starts[wanted[t]], word_starts[wanted[t] + 1]
            _nearest_row(
                contexts[a:b], starts, held, b - a, occurs, counts, touched, best[t], scores[t]
            )


def most_frequent(occur: Int64, count: int) -> Int64:
    """The words that most contexts hold, most frequent first, ties by index; words of no context are left out."""
    order = np.argsort(-occur, kind="stable")[:count]
    return order[occur[order] > 0].astype(np.int64)


def nearest(
    contexts: Rows,
    frequent: Int64,
    wanted: Int64,
    k: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> tuple[Int32, Float64]:
    """S_1 … S_k of each wanted word: the frequent words with the largest DICE coefficients.

    contexts  (contexts, words): what stands in a context has an entry there, whatever its value
    frequent  columns of the F words that may be chosen; ties go to the one that comes first in it
    wanted    columns (T,); S_1 of a frequent word is itself, or one that it never parts from: DICE = 1
    progress  called with the number of words done since

    Returns places in ``frequent``, int32 (T, k), -1 where a word meets fewer than k, and the coefficients,
    float64 (T, k).
    """
    place = np.full(contexts.width, -1, np.int32)
    place[frequent] = np.arange(len(frequent), dtype=np.int32)
    by_word = contexts.csr().tocsc()
    occurs = np.diff(by_word.indptr)[frequent].astype(np.int64)
    of_entry = place[contexts.indices]
    starts = np.concatenate([[0], np.cumsum(of_entry >= 0)])[contexts.indptr].astype(np.int64)
    held = of_entry[of_entry >= 0]
    best = np.empty((len(wanted), k), np.int32)
    scores = np.empty((len(wanted), k), np.float64)
    for first in range(0, len(wanted), _CHUNK):
        part = slice(first, min(first + _CHUNK, len(wanted)))
        _nearest(
            wanted[part],
            by_word.indptr.astype(np.int64, copy=False),
            by_word.indices.astype(np.int32, copy=False),
            starts,
            held,
            occurs,
            numba.get_num_threads(),
            best[part],
            scores[part],
        )
        if progress is not None:
            progress(part.stop - part.start)
    return best, scores


def neighbours(
    words: Sequence[str],
    contexts: Rows,
    count: int,
    k: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> Neighbours:
    """S_1 … S_k of every word and 2-gram of a collection, among its ``count`` most frequent words.

    contexts  (contexts, words)
    """
    occur = np.bincount(contexts.indices, minlength=len(words)).astype(np.int64)
    alone = np.array([not is_bigram(word) for word in words], np.bool_)
    frequent = most_frequent(np.where(alone, occur, 0), count)
    places, _ = nearest(contexts, frequent, np.arange(len(words)), k, progress=progress)
    bins = [words[i] for i in frequent.tolist()]
    return Neighbours(bins, {word: i for i, word in enumerate(words)}, places)


def sentences(texts: Iterable[str]) -> list[str]:
    """The texts cut at line ends and after full stops, question and exclamation marks."""
    return [piece for text in texts for piece in _SENTENCE.split(text) if piece]
