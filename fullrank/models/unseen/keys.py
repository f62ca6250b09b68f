"""Keys of unknown words, so that a live document's word is found by another form of it.

Besides its own bucket w, an unknown word of a document has the buckets of two keys: its folded form k and the singular
of that, n (fullrank.text.folding). So have its compounds, without w. A query's word has its weight x in shares

    w: 1 − a        k: a − b        n: b        a: the discount of folded forms, b: that of plurals

so an equal word scores x, one that is equal after folding a x, and one that is equal in the singular b x. A word that
the model knows has no bucket of its own, and its keys count idf_w / idf of an unknown word, as in fullrank.text.forms.
The words of long queries have no keys, and their neighbours are not joined (fullrank.text.forms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain

import numpy as np

from fullrank.kernels.rows import sort_rows
from fullrank.models.reading import DocumentReading, Reading
from fullrank.models.unseen.rules import Rule
from fullrank.storage.encoding import Int32, Mask, Rows
from fullrank.text.compounds import count_compounds, parts_of
from fullrank.text.features import Vocabulary, count_corpus
from fullrank.text.folding import fold, singular
from fullrank.text.forms import Forms
from fullrank.text.spelling import MAX_WORDS
from fullrank.text.words import is_bigram

# Joined words of a query: two or three neighbours. Each has two features.
_MOST_JOINED = 3
# Unknown words of documents whose features are remembered: documents written together share many.
_CACHED = 1 << 14

# These control characters occur in no word.
_FOLDED, _SINGULAR = "\x1f", "\x1e"

KEYS = 3
"""Buckets of an unknown word of a document, at most: its own and those of its two keys."""

Features = list[tuple[int, float]]


def _keys(word: str) -> tuple[str, str]:
    """Return the two keys as features."""
    key = fold("".join(parts_of(word)))
    return _FOLDED + key, _SINGULAR + singular(key)


def document_buckets(word: str, buckets: Vocabulary) -> tuple[int, ...]:
    """Return the buckets of an unknown word or a compound of a document, some perhaps twice."""
    own = [] if is_bigram(word) else [word]
    return tuple(buckets.bucket(text) for text in (*own, *_keys(word)))


@dataclass(frozen=True, eq=False)
class Keys:
    """Encodes unknown words and their keys; the vocabulary is the rule's words, then R buckets."""

    rule: Rule
    forms: Forms
    vocabulary: Vocabulary
    rows: int

    def documents(self, documents: DocumentReading) -> Rows:
        """Return t′ of documents, (B, R)."""
        columns, known = self.rule.columns, len(self.rule.words)
        plain = documents.counts(columns)
        target, words = self._over(plain.words, known)
        width = known + len(words)
        counts = [column.remap_columns(target, width) for column in plain.columns]
        found = self._spread(counts, known, words)
        compounds = count_corpus([*map(documents.texts, columns)], counter=count_compounds)
        if not compounds.words:
            return found
        target, words = self._over(compounds.words, width)
        wider = width + len(words)
        # No word is a compound, so the columns of both are distinct.
        counts = [
            Rows.add([replace(column, width=wider), more.remap_columns(target, wider)])
            for column, more in zip(counts, compounds.columns, strict=True)
        ]
        return Rows.add([found, self._spread(counts, width, words)])

    def _over(self, words: Sequence[str], first: int) -> tuple[Int32, list[str]]:
        """Return the columns of words, those of unknown ones from `first` on, and the unknown words."""
        target = self.rule.words.rows(words).copy()
        unknown = np.flatnonzero(target < 0)
        target[unknown] = first + np.arange(len(unknown), dtype=np.int32)
        return target, [words[i] for i in unknown.tolist()]

    def _spread(self, counts: Sequence[Rows], first: int, words: Sequence[str]) -> Rows:
        """Weigh counted documents and give the weights of unknown words, whose columns begin at `first`, to buckets."""
        weights = self.rule.document(counts).columns(first, first + len(words))
        return weights.multiply(self._buckets(words))

    def _buckets(self, words: Sequence[str]) -> Rows:
        """Return the buckets of unknown words, (words, R): how often a word has each."""
        found = [*map(self._of_document, words)]
        indptr = np.zeros(len(found) + 1, np.int64)
        np.cumsum([*map(len, found)], out=indptr[1:])
        indices = np.fromiter(chain.from_iterable(found), np.int32, int(indptr[-1]))
        return Rows(*sort_rows(indptr, indices, np.ones(len(indices), np.float32)), self.rows)

    @cached_property
    def _of_document(self) -> Callable[[str], tuple[int, ...]]:
        """`document_buckets` of a word, remembered."""
        find = partial(document_buckets, buckets=self.vocabulary)
        return lru_cache(maxsize=_CACHED)(find)

    def queries(self, texts: Sequence[str]) -> Rows:
        """Return s′ of queries, (B, R)."""
        reading = Reading.of(texts)
        if len(reading) == 1:
            return self._query(reading)
        return Rows.vstack(
            [Rows.empty(0, self.rows), *(self._query(Reading([text])) for text in reading)]
        )

    def _query(self, reading: Reading) -> Rows:
        """Return s′ of one query, (1, R)."""
        found: dict[int, float] = {}
        for _, amount, features in self._split(reading):
            _add(found, amount, features)
        return Rows.from_lists([([*found], [*found.values()])], self.rows)

    def terms(self, text: str) -> dict[str, dict[int, float]]:
        """Split s′ of one query: bucket → weight of each word, and of each compound."""
        found: dict[str, dict[int, float]] = {}
        for name, amount, features in self._split(Reading([text])):
            _add(found.setdefault(name, {}), amount, features)
        return found

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        """Return which words of documents the model does not know and have a key of a query's word."""
        reading = Reading([text])
        names = reading.counts.words
        asked = set[str]()
        if len(names) <= MAX_WORDS:
            joined = [
                "".join(parts) for parts, _, _ in reading.joined if len(parts) <= _MOST_JOINED
            ]
            for name in (*names, *joined):
                folded, number = _keys(name)
                asked |= {folded} if self.forms.folded else set()
                asked |= {number} if self.forms.plurals else set()
        found = self.rule.words.known.rows(words) < 0
        for i in np.flatnonzero(found).tolist():
            found[i] = not asked.isdisjoint(_keys(words[i]))
        return found

    def _split(self, reading: Reading) -> Iterator[tuple[str, float, Features]]:
        """Yield the words of one query, and its neighbouring words in parts: each, its weight, (bucket, share)."""
        names, weights, split = self._words(reading)
        for name, amount in zip(names, weights, strict=True):
            yield name, amount, split(name)
        for parts, keys, number in reading.joined:
            if len(parts) <= _MOST_JOINED:
                yield " ".join(parts), 1.0, self._shares(keys[0], number, 1.0)

    def _words(
        self, reading: Reading
    ) -> tuple[Sequence[str], Sequence[float], Callable[[str], Features]]:
        """Return the words of one query, known or not, their weights, and what tells the features of each."""
        counts, known = reading.counts, len(self.rule.words)
        words, [column] = counts.words, counts.columns
        rows, places = self.rule.words.rows(words), np.arange(len(words), dtype=np.int32)
        target = np.where(rows < 0, np.int32(known) + places, rows)
        order = np.argsort(target)
        weighed = Rows(column.indptr, target[order], column.values[order], known + len(words))
        weights = np.empty(len(words), np.float32)
        weights[order] = self.rule.query(weighed).values
        split = self._of_query if len(words) <= MAX_WORDS else self._own_bucket
        return words, weights.tolist(), split

    def _own_bucket(self, word: str) -> Features:
        is_known = word in self.rule.words.known
        return [] if is_known else [(self.vocabulary.bucket(word), 1.0)]

    @cached_property
    def _of_query(self) -> Callable[[str], Features]:
        """`_features` of a word, remembered."""
        return lru_cache(maxsize=_CACHED)(self._features)

    def _features(self, word: str) -> Features:
        """Return (bucket, share) of a word of a query."""
        row = self.rule.words.known.find(word)
        key = fold(word)
        if row >= 0:
            return self._shares(key, singular(key), float(self.rule.idf[row]) / self._rarest)
        most = max(self.forms.folded, self.forms.plurals)
        own = [(self.vocabulary.bucket(word), 1.0 - most)] if most < 1 else []
        return self._shares(key, singular(key), 1.0) + own

    def _shares(self, key: str, number: str, strength: float) -> Features:
        """Return (bucket, share) of a folded form and of its singular; strength: relative to unknown words."""
        pairs = zip((_FOLDED + key, _SINGULAR + number), self._key_shares, strict=True)
        return [(self.vocabulary.bucket(k), share * strength) for k, share in pairs if share]

    @property
    def _key_shares(self) -> tuple[float, float]:
        """The shares of the folded form of a word of a query, and of its singular."""
        folded, plurals = self.forms.folded, self.forms.plurals
        return max(folded - plurals, 0.0), plurals

    @cached_property
    def _rarest(self) -> float:
        return float(self.rule.idf.max(initial=0.0)) or 1.0


def _add(weights: dict[int, float], amount: float, features: Features) -> None:
    for bucket, share in features:
        weights[bucket] = weights.get(bucket, 0.0) + amount * share
