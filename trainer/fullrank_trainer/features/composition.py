"""Compose word vectors of trained rows, and fold trained rows into one table of words for serving.

    u_w = Σ_r C_wr U_r                  C: (words, trained rows), sparse

    own rows              C = I
    letter trigrams       C = [I | T]       T_wg = 1/√|G_w| for each trigram g of w
    trigrams "only"       C = T             word hashing
    hashing "all"         C = H             H_wj = 1/√k for j = S_1(w) … S_k(w): correlated feature hashing
    hashing "rare"        C = [F | H]       frequent words have rows of their own; every other word has rows of a
                                            second table

u = Σ_w x_w u_w is linear, so training works on x C and a compiled model stores C U, one row per word. Serving needs C
for unseen words only; they have trigrams and no neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import prange

from fullrank.models.linear import DenseSide
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.text.features import count_corpus, trigram_rows
from fullrank.text.words import Bigrams, is_bigram, words
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.corpus import Corpus, Totals, columns_of, document_frequency
from fullrank_trainer.recipes.settings import ModelSettings

Matrix = sp.csr_array[np.float32]

_FOLDED_ROWS = 1 << 13  # at once; the sum of all rows at once would need two more tables


@dataclass(frozen=True, eq=False)
class Composition:
    """C of one side. The trained rows are ``labels``, then trigrams.

    Attributes:
        labels: of the trained rows; equal labels on both sides mean the same.
        second_table: the rows of the second table; empty if there is one table.
    """

    labels: Sequence[str]
    words: Matrix | None
    second_table: slice = field(default_factory=lambda: slice(0))

    def composer(self, side: DenseSide, unseen: Sequence[str]) -> Callable[[Rows], Rows]:
        """Return a function from x, over the side's words and then ``unseen``, to x C: φ over trained rows."""
        known = len(side.words)
        if self.words is None and not len(side.trigrams):
            return lambda x: x
        letters = None
        if len(side.trigrams):
            letters = trigram_rows([*side.words.words, *unseen], side.trigrams).csr()

        def compose(x: Rows) -> Rows:
            matrix = x.csr()
            parts = [matrix[:, :known] if self.words is None else matrix[:, :known] @ self.words]
            if letters is not None:
                parts.append(matrix @ letters)
            return Rows.from_csr(sp.csr_array(sp.hstack(parts, format="csr")))

        return compose

    def fold(
        self,
        side: DenseSide,
        table: Float32,
        zeros: Callable[[tuple[int, int]], Float32] = np.zeros,
    ) -> DenseSide:
        """Return the side that serves: C U, whose array ``zeros`` makes, and the trigrams' rows for unseen words."""
        rows, letters = table[: len(self.labels)], table[len(self.labels) :]
        if self.words is not None:
            rows = np.asarray(self.words @ rows)
        if len(letters):
            own, rows = rows, zeros((len(rows), table.shape[1]))
            parts = trigram_rows(side.words.words, side.trigrams).csr()
            for first in range(0, len(rows), _FOLDED_ROWS):
                block = slice(first, first + _FOLDED_ROWS)
                rows[block] = own[block] + np.asarray(parts[block] @ letters)
        return replace(
            side,
            table=np.ascontiguousarray(rows, np.float32),
            trigram_table=np.ascontiguousarray(letters, np.float32),
        )


def hashed(words: Sequence[str], neighbours: Neighbours) -> Composition:
    """Compose every word of the rows of its bins S_1(w) … S_k(w), each times 1/√k."""
    return Composition(list(neighbours.bins), _bins_of(words, neighbours))


def mixed(words: Sequence[str], neighbours: Neighbours) -> Composition:
    """Give frequent words their own rows and hash the others into a second table."""
    place = {word: j for j, word in enumerate(neighbours.bins)}
    own = np.array([place.get(word, -1) for word in words], np.int32).reshape(-1)
    frequent = np.flatnonzero(own >= 0)
    first = sp.csr_array(
        (np.ones(len(frequent), np.float32), (frequent, own[frequent])),
        shape=(len(words), len(neighbours.bins)),
    )
    others = sp.diags_array((own < 0).astype(np.float32))
    second = sp.csr_array(others @ _bins_of(words, neighbours))
    second.eliminate_zeros()
    labels = [*neighbours.bins, *(f"like {word}" for word in neighbours.bins)]
    both = sp.csr_array(sp.hstack([first, second], format="csr"))
    return Composition(labels, both, slice(len(neighbours.bins), len(labels)))


def _bins_of(words: Sequence[str], neighbours: Neighbours) -> Matrix:
    rows = np.array([neighbours.index.get(word, -1) for word in words], np.int64).reshape(-1)
    places = np.where(rows[:, None] >= 0, neighbours.places[rows], np.int32(-1))
    k = places.shape[1]
    word, _ = np.nonzero(places >= 0)
    values = np.full(len(word), k**-0.5, np.float32)
    shape = (len(words), len(neighbours.bins))
    return sp.csr_array((values, (word, places[places >= 0])), shape=shape)


@dataclass(frozen=True, eq=False)
class Phi:
    """φ = x C of texts: x, (texts, words), and C, (words, trained rows); None if each word is a trained row.

    x C of a corpus has several times as many entries as x. A step composes each word of its batch once.
    """

    words: Rows
    parts: Rows | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        """Number of trained rows."""
        return self.words.width if self.parts is None else self.parts.width

    def slice(self, start: int, stop: int) -> Phi:
        """View texts start..stop."""
        return Phi(self.words.slice(start, stop), self.parts)

    def composed(self) -> Rows:
        """Return x C, (texts, trained rows)."""
        return self.words if self.parts is None else self.words.multiply(self.parts)

    @property
    def arrays(self) -> list[npt.NDArray[np.generic]]:
        """The arrays of both matrices."""
        return [*self.words.arrays, *(() if self.parts is None else self.parts.arrays)]


_MAX_BIGRAMS = 8_000_000  # distinct 2-grams in memory, 16 bytes each
_BUFFER = 2_000_000  # 2-grams of texts between two merges


def _merged(keys: Int64, counts: Int64, texts: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Count the 2-grams of more texts; beyond ``_MAX_BIGRAMS`` the rarest are dropped."""
    given = np.concatenate([keys, *texts])
    keys, at = np.unique(given, return_inverse=True)
    ones = np.ones(len(given) - len(counts))
    counts = np.bincount(at, np.concatenate([counts, ones]), len(keys)).astype(np.int64)
    while len(keys) > _MAX_BIGRAMS:
        kept = counts > counts.min()
        keys, counts = keys[kept], counts[kept]
    return keys, counts


def frequent_bigrams(
    texts: Iterable[str],
    known: Mapping[str, int],
    min_texts: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Find the 2-grams that occur in at least ``min_texts`` texts, as "word word", ascending.

    A line end separates words. Beyond 8 million distinct 2-grams the rarest are dropped, so one that becomes frequent
    late may be missed.

    Args:
        known: words that 2-grams may consist of → distinct numbers below 2³¹.
    """
    keys = counts = np.zeros(0, np.int64)
    waiting: list[Int64] = []
    buffered = 0
    for text in texts:
        found = []
        for line in text.split("\n"):
            numbers = np.array([known.get(word, -1) for word in words(line)], np.int64)
            left, right = numbers[:-1], numbers[1:]
            both = (left >= 0) & (right >= 0)
            found.append((left[both] << 32) | right[both])
        waiting.append(np.unique(np.concatenate(found)))
        buffered += len(waiting[-1])
        if buffered >= _BUFFER:
            keys, counts = _merged(keys, counts, waiting)
            waiting, buffered = [], 0
        if progress is not None:
            progress(1)
    keys, counts = _merged(keys, counts, waiting)
    name = {number: word for word, number in known.items()}
    frequent = keys[counts >= min_texts].tolist()
    return sorted(f"{name[key >> 32]} {name[key & 0xFFFFFFFF]}" for key in frequent)


# DICE coefficients: which frequent words occur together with a word or 2-gram.
#
#     DICE(i, j) = 2 · cooccur(i, j) / (occur(i) + occur(j))              Bai et al. 2009, section 2.2.1
#
# occur(i) is the number of contexts (training texts) that contain i, cooccur(i, j) the number that contain both, so the
# coefficient is at most 1. The cost of a word is the number of frequent words in its contexts.


_CHUNK = 2048  # words between two reports of progress


@dataclass(frozen=True, eq=False)
class Neighbours:
    """S_p of every word and 2-gram of a collection.

    Attributes:
        bins: the F frequent words, most frequent first.
        places: int32 (words, k): S_1 … S_k as places in ``bins``; -1 if there are fewer.
    """

    bins: Sequence[str]
    index: dict[str, int]
    places: Int32


@compiled()
def _nearest_row(  # type: ignore[no-untyped-def]
    contexts, starts, frequent, occur, occurs, counts, touched, best, score
):
    """Write the frequent words of largest DICE with one word, of ``occur`` contexts, into ``best`` and ``score``.

    The frequent words of context c are frequent[starts[c]:starts[c + 1]]; counts is zero before and after.
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
    """Do every wanted word; one thread makes each row."""
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

    Returns:
        Places in ``frequent``, int32 (T, k), -1 where there are fewer, and the coefficients, float64 (T, k).
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


def single_words(words: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which entries of a word list are words, not 2-grams, bool (words,)."""
    return np.array([not is_bigram(word) for word in words], np.bool_)


def training_frequency(corpus: Corpus) -> Int64:
    """Return in how many training texts each word occurs, int64 (words,)."""
    if corpus.collection.documents_are_queries:
        return corpus.frequency
    return corpus.frequency + document_frequency(corpus.queries.take(corpus.pairs.queries))


def with_bigrams(corpus: Corpus, min_texts: int, reporter: Reporter) -> Corpus:
    """Add counts of the 2-grams that occur in at least ``min_texts`` training texts; 0 adds none."""
    if min_texts == 0:
        return corpus
    if ("bigrams", min_texts) not in corpus.cache:
        words, texts = corpus.counts.words, corpus.training_texts()
        frequent = np.flatnonzero(training_frequency(corpus) >= min_texts)
        numbers = {words[i]: i for i in frequent.tolist()}
        with reporter.stage("2-grams", len(texts)) as stage:
            known = frequent_bigrams(texts, numbers, min_texts, progress=stage.advance)
        counts = count_corpus(
            columns_of(corpus.collection, corpus.sources),
            processes=corpus.processes,
            counter=Bigrams(known).count,
        )
        corpus.cache["bigrams", min_texts] = replace(
            corpus, counts=counts, cache={}, totals=Totals()
        )
    found: Corpus = corpus.cache["bigrams", min_texts]
    return found


def find_neighbours(corpus: Corpus, settings: ModelSettings, reporter: Reporter) -> Neighbours:
    """Find S_1 … S_k of every word and 2-gram of the training texts, among the F most frequent words."""
    key = ("neighbours", settings.bin_words, settings.bins)
    if key not in corpus.cache:
        words, contexts = corpus.counts.words, corpus.documents
        if not corpus.collection.documents_are_queries:
            contexts = Rows.vstack([contexts, corpus.queries.take(corpus.pairs.queries)])
        occur = np.where(single_words(words), document_frequency(contexts), 0)
        frequent, every = most_frequent(occur, settings.bin_words), np.arange(len(words))
        with reporter.stage("nearest words", len(words)) as stage:
            places, _ = nearest(contexts, frequent, every, settings.bins, progress=stage.advance)
        bins = [words[i] for i in frequent.tolist()]
        corpus.cache[key] = Neighbours(bins, {w: i for i, w in enumerate(words)}, places)
    found: Neighbours = corpus.cache[key]
    return found


def composition(
    corpus: Corpus, settings: ModelSettings, words: Sequence[str], reporter: Reporter
) -> Composition:
    """Return the trained rows that the words of one side are composed of."""
    if settings.trigrams == "only":
        return Composition([], sp.csr_array(np.zeros((len(words), 0), np.float32)))
    if settings.hashing == "none":
        return Composition(words, None)
    compose = mixed if settings.hashing == "rare" else hashed
    return compose(words, find_neighbours(corpus, settings, reporter))
