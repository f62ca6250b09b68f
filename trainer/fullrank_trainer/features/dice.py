"""DICE coefficients: which frequent words occur together with a word or 2-gram.

    DICE(i, j) = 2 · cooccur(i, j) / (occur(i) + occur(j))              Bai et al. 2009, section 2.2.1

occur(i) is the number of contexts (documents, or sentences) that contain i, cooccur(i, j) the number that contain both.
The paper counts co-occurrence by context but may count single occurrences of words. Counting both in contexts keeps the
coefficient at most 1, and 1 only for words that always occur together. It also keeps a word that one article repeats
forty times from looking frequent.

The kernel walks contexts, not pairs of words: the cost of a word is the number of frequent words in its contexts, and
memory is one counter per frequent word and thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from fullrank.encoding import Int32, Int64, Rows
from fullrank.text.bigrams import is_bigram
from fullrank_trainer.compiled import compiled

Float64 = npt.NDArray[np.float64]

_CHUNK = 2048  # words between two reports of progress
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """S_p of every word and 2-gram of a collection.

    Attributes:
        bins: the F frequent words, most frequent first.
        index: word or 2-gram → its row.
        places: int32 (words, k): S_1 … S_k as places in ``bins``; -1 if there are fewer.
    """

    bins: Sequence[str]
    index: dict[str, int]
    places: Int32


@compiled()
def _nearest_row(  # type: ignore[no-untyped-def]
    contexts, starts, frequent, occur, occurs, counts, touched, best, score
):
    """Write the frequent words of largest DICE with one word into ``best`` and ``score``.

    Args:
        contexts: those that contain the word; ``occur`` is their number.
        starts, frequent: the frequent words of context c are frequent[starts[c]:starts[c + 1]].
        occurs: of each frequent word.
        counts: zero before and after, int32 (frequent words,).
        touched: scratch, int32 (frequent words,).
    """
    found = 0
    for c in contexts:
        for e in range(starts[c], starts[c + 1]):
            j = frequent[e]
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


@compiled(parallel=True)
def _nearest(  # type: ignore[no-untyped-def]
    wanted, word_starts, contexts, starts, frequent, occurs, shards, best, scores
):
    """Do every wanted word; shard i does every ``shards``-th, so one thread makes each row."""
    for i in prange(shards):
        counts = np.zeros(len(occurs), np.int32)
        touched = np.empty(len(occurs), np.int32)
        for t in range(i, len(wanted), shards):
            a, b = word_starts[wanted[t]], word_starts[wanted[t] + 1]
            _nearest_row(
                contexts[a:b], starts, frequent, b - a, occurs, counts, touched, best[t], scores[t]
            )


def most_frequent(occur: Int64, count: int) -> Int64:
    """Return the ``count`` words of most contexts, most frequent first, ties by index; none of zero contexts."""
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
    """Find S_1 … S_k of each wanted word: the frequent words with the largest DICE coefficients.

    Args:
        contexts: (contexts, words); a word occurs in a context if it has an entry there, of any value.
        frequent: columns of the F words that may be chosen; ties go to the first of them.
        wanted: columns (T,). S_1 of a frequent word is itself or a word that always occurs with it (DICE = 1).
        k: neighbours of each.
        progress: called with the number of words done since.

    Returns:
        Places in ``frequent``, int32 (T, k), -1 if a word occurs with fewer than k, and the coefficients,
        float64 (T, k).
    """
    place = np.full(contexts.width, -1, np.int32)
    place[frequent] = np.arange(len(frequent), dtype=np.int32)
    by_word = contexts.csr().tocsc()
    occurs = np.diff(by_word.indptr)[frequent].astype(np.int64)
    of_entry = place[contexts.indices]
    starts = np.concatenate([[0], np.cumsum(of_entry >= 0)])[contexts.indptr].astype(np.int64)
    words_of_context = of_entry[of_entry >= 0]
    best = np.empty((len(wanted), k), np.int32)
    scores = np.empty((len(wanted), k), np.float64)
    for first in range(0, len(wanted), _CHUNK):
        part = slice(first, min(first + _CHUNK, len(wanted)))
        _nearest(
            wanted[part],
            by_word.indptr.astype(np.int64, copy=False),
            by_word.indices.astype(np.int32, copy=False),
            starts,
            words_of_context,
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
    """Find S_1 … S_k of every word and 2-gram of a collection, among its ``count`` most frequent words.

    Args:
        words: of the collection.
        contexts: (contexts, words).
        count: F.
        k: neighbours of each.
        progress: called with the number of words done since.
    """
    occur = np.bincount(contexts.indices, minlength=len(words)).astype(np.int64)
    single = np.array([not is_bigram(word) for word in words], np.bool_)
    frequent = most_frequent(np.where(single, occur, 0), count)
    places, _ = nearest(contexts, frequent, np.arange(len(words)), k, progress=progress)
    bins = [words[i] for i in frequent.tolist()]
    return Neighbours(bins, {word: i for i, word in enumerate(words)}, places)


def sentences(texts: Iterable[str]) -> list[str]:
    """Cut texts at line ends and after full stops, question and exclamation marks."""
    return [piece for text in texts for piece in _SENTENCE.split(text) if piece]
