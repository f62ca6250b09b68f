"""Features of a query and each of its first documents: one function, for training and for serving.

score, dense, lexical, bias   the first score and its parts
gap, place                    below the first document's score; place in the ranking, from 1
words                         distinct words of the query
matched                       share of them in any field of the document
clicks                        ln(1 + training queries that led to the document)
age                           days before the newest date of the training documents; NO_AGE without a date
lexical.<field>               BM25 of the field alone
matched.<field>               share of the query's words in the field
covered.<field>               share of the field's distinct words in the query
length.<field>                ln(1 + words of the field)
nearest                       the largest cosine of the query's words and those of a training query that led to the
                              document, of its first MOST_ASKED; a word weighs its idf
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fullrank.search.rerank.facts import MOST_ASKED, NO_DATE, DocumentFacts, UInt32, numbered
from fullrank.storage.encoding import Float32, Float64, Int64, Mask
from fullrank.text.words import count_words

_PLAIN = ("score", "dense", "lexical", "bias", "gap", "place", "words", "matched", "clicks", "age")
_BY_FIELD = ("lexical", "matched", "covered", "length")
# Older than any date: without one, a document is not new.
NO_AGE = 1e6
_K1, _B = 1.2, 0.75
_LOW_BITS = (1 << 16) - 1
_LARGEST = np.finfo(np.float32).max


def names(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all features of documents with these text fields, in the order of the columns."""
    return (*_PLAIN, *(f"{kind}.{field}" for field in fields for kind in _BY_FIELD), "nearest")


class FirstStage(NamedTuple):
    """The first documents of a ranking, best first; float64 (R,) each, score = dense + lexical + bias."""

    scores: Float64
    dense: Float64
    lexical: Float64
    bias: Float64


def was_chosen(features: Float32) -> Mask:
    """Return which documents a training query led to, bool (R,); features float32 (R, K)."""
    return features[:, _PLAIN.index("clicks")] > 0


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the features need to know about the training documents.

    Attributes:
        words: uint32 (W,), ascending, the words of any field.
        idf: float32 (W,), ln(1 + (n − df + ½) / (df + ½)).
        mean_lengths: Mean words of each field.
        newest: The newest date in days since 1970; NO_DATE without one.
    """

    words: UInt32
    idf: Float32
    mean_lengths: tuple[float, ...]
    newest: int

    @staticmethod
    def of(facts: DocumentFacts) -> Statistics:
        """Count documents."""
        owner = np.repeat(np.repeat(np.arange(len(facts)), facts.fields), np.diff(facts.indptr))
        # A document counts once for a word of several fields.
        keys = np.unique((facts.words.astype(np.uint64) << np.uint64(32)) | owner.astype(np.uint64))
        words, df = np.unique((keys >> np.uint64(32)).astype(np.uint32), return_counts=True)
        idf = np.log1p((len(facts) - df + 0.5) / (df + 0.5)).astype(np.float32)
        mean = (
            facts.lengths.mean(axis=0, dtype=np.float64) if len(facts) else np.zeros(facts.fields)
        )
        newest = int(facts.days.max(initial=NO_DATE))
        return Statistics(words, idf, tuple(mean.tolist()), newest)

    def idf_of(self, words: UInt32) -> Float64:
        """Return the idf of each word; that of unknown words is the highest."""
        highest = float(self.idf.max(initial=0.0)) or 1.0
        if not len(self.words):
            return np.full(len(words), highest)
        place = np.minimum(self.words.searchsorted(words), len(self.words) - 1)
        known = self.words[place] == words
        return np.where(known, self.idf[place], highest).astype(np.float64)

    def weigh(self, facts: DocumentFacts) -> DocumentFacts:
        """Weigh the words of training queries by their idf, so that each query is a unit vector."""
        query, idf = facts.asked_of, self.idf_of(facts.asked_words)
        begin = np.flatnonzero(np.diff(query, prepend=-1))
        norms = np.sqrt(np.add.reduceat(idf**2, begin))
        weights = idf / np.repeat(norms, np.diff(begin, append=len(query)))
        return replace(facts, asked_weights=weights.astype(np.float32))


def compute(text: str, first: FirstStage, facts: DocumentFacts, statistics: Statistics) -> Float32:
    """Compute the features of a query's first documents.

    Returns:
        float32 (R, K) with a column for each of `names`, all finite.
    """
    return in_list(_of_pairs(text, first, facts, statistics), first.scores)


def in_list(features: Float32, scores: Float64) -> Float32:
    """Return features with those that depend on the other documents of the list: gap and place.

    All others are features of a pair, so those of a list are those of its parts, put together and passed here.

    Args:
        scores: float64 (R,), their first scores, best first.
    """
    found = features.copy()
    found[:, _PLAIN.index("gap")] = _finite(scores[:1] - scores)
    found[:, _PLAIN.index("place")] = np.arange(1, len(scores) + 1)
    return found


def _of_pairs(
    text: str,
    first: FirstStage,
    facts: DocumentFacts,
    statistics: Statistics,
) -> Float32:
    """Compute the features of each pair, with zeros for gap and place."""
    count, width = len(facts), facts.fields
    words, _ = numbered(count_words(text))
    n_words = max(1, len(words))
    line, place = _matches(facts.words, words)
    lines = count * width
    owner_of_line = facts.indptr.searchsorted(line, side="right") - 1
    tf = facts.counts[line].astype(np.float64)
    lengths = facts.lengths.astype(np.float64)
    mean = np.maximum(np.array(statistics.mean_lengths), 1e-9)
    norm = (_K1 * (1 - _B + _B * lengths / mean)).ravel()
    weight = statistics.idf_of(words)[place] * tf * (_K1 + 1) / (tf + norm[owner_of_line])
    by_field = np.bincount(owner_of_line, weight, lines).reshape(count, width)
    hits = np.bincount(owner_of_line, minlength=lines).reshape(count, width)
    # A word in several fields matches once.
    pairs = np.unique(owner_of_line // width * len(words) + place) if width else line
    anywhere = np.bincount(pairs // n_words, minlength=count)
    distinct = np.diff(facts.indptr).reshape(count, width)
    found = np.empty((count, len(_PLAIN) + width * len(_BY_FIELD) + 1))
    found[:, 0], found[:, 1] = first.scores, first.dense
    found[:, 2], found[:, 3] = first.lexical, first.bias
    found[:, 4:6] = 0
    found[:, 6] = len(words)
    found[:, 7] = anywhere / n_words
    found[:, 8] = np.log1p(facts.clicks)
    found[:, 9] = np.where(facts.days == NO_DATE, NO_AGE, float(statistics.newest) - facts.days)
    by_kind = found[:, len(_PLAIN) : -1].reshape(count, width, len(_BY_FIELD))
    by_kind[:, :, 0] = by_field
    by_kind[:, :, 1] = hits / n_words
    by_kind[:, :, 2] = hits / np.maximum(distinct, 1)
    by_kind[:, :, 3] = np.log1p(lengths)
    found[:, -1] = _nearest(facts, words, statistics)
    return _finite(found)


def _finite(values: Float64) -> Float32:
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)


def _nearest(facts: DocumentFacts, words: UInt32, statistics: Statistics) -> Float64:
    """Return the largest cosine of the query's words and those of a training query of each document."""
    idf = statistics.idf_of(words)
    shared, place = _matches(facts.asked_words, words)
    weights = facts.asked_weights[shared] * (idf / np.sqrt((idf**2).sum() or 1.0))[place]
    cosines = np.bincount(facts.asked_of[shared], weights, len(facts) * MOST_ASKED)
    return np.asarray(cosines.reshape(-1, MOST_ASKED).max(axis=1))


def _matches(given: UInt32, words: UInt32) -> tuple[Int64, Int64]:
    """Return which of the given words are in the query, and their places in the query."""
    if not len(words):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # Most entries fail this look-up of 16 bits, which costs less than a search.
    possible = np.zeros(_LOW_BITS + 1, np.bool_)
    possible[words & _LOW_BITS] = True
    entries = np.flatnonzero(possible.take(given & _LOW_BITS))
    place = np.minimum(words.searchsorted(given[entries]), len(words) - 1)
    kept = words[place] == given[entries]
    return entries[kept], place[kept]
