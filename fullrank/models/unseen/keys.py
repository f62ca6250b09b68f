"""Keys of unknown words, so that a live document's word is found by another form of it.

Besides its own bucket w, an unknown word of a document has the buckets of two keys: its folded form k and the singular
of that, n (fullrank.text.folding). So have its compounds, without w. A query's word has its weight x in shares

    w: 1 − a        k: a − b        n: b        a: the discount of folded forms, b: that of plurals

so an equal word scores x, one that is equal after folding a x, and one that is equal in the singular b x. A word that
the model knows has no bucket of its own, and its keys count idf_w / idf of an unknown word, as in fullrank.text.forms.
The words of long queries have no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from fullrank.encoding import Rows
from fullrank.models.reading import DocumentReading
from fullrank.models.unseen.rules import Rule
from fullrank.text.bigrams import is_bigram
from fullrank.text.compounds import count_compounds, parts_of
from fullrank.text.features import Counts, Vocabulary, count_corpus
from fullrank.text.folding import fold, singular
from fullrank.text.forms import Forms
from fullrank.text.variants import MAX_WORDS, short_queries
from fullrank.text.words import words

# Joined words of a query: two or three neighbours. Each has two features.
_MOST_JOINED = 3
# Unknown words of documents whose features are remembered: documents written together share many.
_CACHED = 1 << 14

Features = list[tuple[int, float]]


def _keys(word: str) -> tuple[str, str]:
    """Return the two keys as features; the control characters occur in no word."""
    key = fold("".join(parts_of(word)))
    return f"\x1f{key}", f"\x1e{singular(key)}"


def document_features(word: str, buckets: Vocabulary) -> Features:
    """Return (bucket, share) of an unknown word or a compound of a document."""
    own = [] if " " in word else [word]
    return [(buckets.bucket(text), 1.0) for text in (*own, *_keys(word))]


def query_features(
    word: str, strength: float | None, forms: Forms, buckets: Vocabulary
) -> Features:
    """Return (bucket, share) of a word or a compound of a query.

    Args:
        word: The word.
        strength: Of a known word, relative to that of unknown words, at most 1; None for an unknown word or a compound.
        forms: Has the discounts.
        buckets: The buckets.
    """
    key, number = _keys(word)
    most = max(forms.folded, forms.plurals)
    factor = 1.0 if strength is None else strength
    shares = [(key, (most - forms.plurals) * factor), (number, forms.plurals * factor)]
    if strength is None and " " not in word:
        shares.append((word, 1.0 - most))
    return [(buckets.bucket(text), share) for text, share in shares if share]


def joined(text: str) -> dict[str, int]:
    """Count the neighbouring words of a query, in parts: each may be one word of a document."""
    found = words(text)
    counts: dict[str, int] = {}
    if len(found) <= MAX_WORDS:
        for size in range(2, _MOST_JOINED + 1):
            for start in range(len(found) - size + 1):
                compound = " ".join(found[start : start + size])
                counts[compound] = counts.get(compound, 0) + 1
    return counts


def _rows(features: Iterable[Features], width: int) -> Rows:
    several = list(features)
    return Rows.from_lists(
        [([bucket for bucket, _ in one], [share for _, share in one]) for one in several], width
    )


@dataclass(frozen=True, eq=False)
class Keys:
    """Encodes unknown words and their keys.

    Attributes:
        rule: Weighs words.
        forms: Has the discounts.
        vocabulary: The rule's words, then the buckets.
        rows: R, the number of buckets.
    """

    rule: Rule
    forms: Forms
    vocabulary: Vocabulary
    rows: int

    def documents(self, documents: DocumentReading) -> Rows:
        """Return t′ of documents, (B, R)."""
        columns = self.rule.columns
        plain = documents.counts(columns)
        found = self._spread(plain, self.rule.document, lambda word: True)
        compounds = count_corpus([*map(documents.texts, columns)], counter=count_compounds)
        if not compounds.words:
            return found
        pairs = zip(plain.columns, compounds.columns, strict=True)
        both = Counts(plain.words + compounds.words, [Rows.hstack(*pair) for pair in pairs])
        return Rows.add([found, self._spread(both, self.rule.document, is_bigram)])

    def _spread(
        self,
        counts: Counts,
        weigh: Callable[[Sequence[Rows]], Rows],
        is_wanted: Callable[[str], bool],
    ) -> Rows:
        """Weigh counted documents and give the weights of unknown words to their buckets."""
        known = len(self.rule.words)
        target = self.rule.words.rows(counts.words)
        unknown = np.flatnonzero(target < 0)
        target[unknown] = known + np.arange(len(unknown), dtype=np.int32)
        width = known + len(unknown)
        weights = weigh([column.remap_columns(target, width) for column in counts.columns])
        names = [counts.words[i] for i in unknown.tolist()]
        features = (self._of_document(name) if is_wanted(name) else [] for name in names)
        return weights.columns(known, width).multiply(_rows(features, self.rows))

    @cached_property
    def _of_document(self) -> Callable[[str], Features]:
        """`document_features` of a word, remembered."""
        find = partial(document_features, buckets=self.vocabulary)
        return lru_cache(maxsize=_CACHED)(find)

    def queries(self, texts: Sequence[str]) -> Rows:
        """Return s′ of queries, (B, R)."""
        names, weights = self._weights(texts)
        compounds = count_corpus([texts], counter=joined)
        short = short_queries(weights)
        parts = [
            short.multiply(_rows(map(self._features, names), self.rows)),
            compounds.columns[0].multiply(_rows(map(self._features, compounds.words), self.rows)),
        ]
        if len(short.indices) < len(weights.indices):
            rest = weights.csr() - short.csr()
            rest.eliminate_zeros()
            own = _rows(map(self._own_bucket, names), self.rows)
            parts.append(Rows.from_csr(rest).multiply(own))
        return Rows.add(parts)

    def terms(self, text: str) -> dict[str, dict[int, float]]:
        """Split s′ of one query: bucket → weight of each word, and of each compound."""
        names, weights = self._weights([text])
        found: dict[str, dict[int, float]] = {}
        amounts = dict(zip(weights.indices.tolist(), weights.values.tolist(), strict=True))
        of_words = [(name, amounts.get(i, 0.0)) for i, name in enumerate(names)]
        split = self._features if len(weights.indices) <= MAX_WORDS else self._own_bucket
        for name, amount in (*of_words, *joined(text).items()):
            features = found.setdefault(name, {})
            for bucket, share in split(name):
                features[bucket] = features.get(bucket, 0.0) + amount * share
        return found

    def _weights(self, texts: Sequence[str]) -> tuple[list[str], Rows]:
        """Weigh the words of queries; known and unknown words have columns of their own."""
        counts = count_corpus([texts])
        known, target = len(self.rule.words), self.rule.words.rows(counts.words)
        unknown = np.flatnonzero(target < 0)
        target[unknown] = known + np.arange(len(unknown), dtype=np.int32)
        width = known + len(unknown)
        weights = self.rule.query(counts.columns[0].remap_columns(target, width))
        back = np.full(width, -1, np.int32)
        back[target] = np.arange(len(counts.words), dtype=np.int32)
        return counts.words, weights.remap_columns(back, len(counts.words))

    def _own_bucket(self, word: str) -> Features:
        is_known = word in self.rule.words.index
        return [] if is_known else [(self.vocabulary.bucket(word), 1.0)]

    def _features(self, word: str) -> Features:
        row = self.rule.words.index.get(word)
        strength = None if row is None else float(self.rule.idf[row]) / self._rarest
        return query_features(word, strength, self.forms, self.vocabulary)

    @cached_property
    def _rarest(self) -> float:
        return float(self.rule.idf.max(initial=0.0)) or 1.0
