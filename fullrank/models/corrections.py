"""Known words in the place of unknown words of a query: corrected counts.

    n'_w = n_w + λ Σ_t P(w | t) n_t        t: the unknown words of the query; P: fullrank.text.spelling; λ: the discount

An unknown word keeps its own count in the lexical part, where it may have a bucket, also one of live documents. In the
dense part, which knows it by its letter trigrams, it keeps `KEPT` of it: trigrams of a typing error are partly wrong,
and the known word says more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.models.words import Words
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Rows
from fullrank.storage.strings import Names
from fullrank.text.features import Counts
from fullrank.text.spelling import Correction, short_queries

KEPT = 0.25
MAX_CORRECTED = 32
"""Most distinct words of a query that is corrected; unknown words of longer ones would cost time."""


@dataclass(frozen=True, eq=False)
class Corrected:
    """Counts of queries with known words added, (B, words); the words ascend.

    Attributes:
        found: The corrections of each unknown word, discounted.
    """

    words: list[str]
    lexical: Rows
    dense: Rows
    found: Mapping[str, Sequence[Correction]]


def correct(known: Words, words: Sequence[str], counts: Rows) -> Corrected | None:
    """Add known words to counts of queries of up to `MAX_CORRECTED` words; None if no word is to be corrected."""
    columns = known.unknown(words)
    # A short query counted alone has every word, and is the common case.
    is_alone = len(counts) == 1 and len(words) == len(counts.indices) <= MAX_CORRECTED
    if columns and not is_alone:
        asked = short_queries(counts, MAX_CORRECTED).distinct()
        columns = sorted({*columns}.intersection(asked))
    found = {i: near for i in columns if (near := known.corrections(words[i]))}
    if not found:
        return None
    added_words = (near.word for several in found.values() for near in several)
    more = Names(sorted({*words, *added_words}))
    place = {word: i for i, word in enumerate(more)}
    target = np.array([place[word] for word in words], np.int32)
    added = {i: [(place[near.word], near.probability) for near in found[i]] for i in found}
    sizes = np.diff(counts.indptr)
    typed = np.repeat(sizes <= MAX_CORRECTED, sizes) & np.isin(counts.indices, list(found))
    kept = counts.values * np.where(typed, np.float32(KEPT), np.float32(1))
    extra = _extra(counts, np.flatnonzero(typed).tolist(), added)
    return Corrected(
        more,
        _joined(counts, target, extra, len(more)),
        _joined(counts.with_values(kept), target, extra, len(more)),
        {words[i]: several for i, several in found.items()},
    )


def _extra(
    counts: Rows, entries: Sequence[int], added: Mapping[int, Sequence[tuple[int, float]]]
) -> tuple[Sequence[int], Sequence[int], Sequence[float]]:
    rows = np.searchsorted(counts.indptr, entries, side="right") - 1
    found = [
        (row, column, probability * value)
        for row, index, value in zip(
            rows.tolist(),
            counts.indices[entries].tolist(),
            counts.values[entries].tolist(),
            strict=True,
        )
        for column, probability in added[index]
    ]
    a, b, c = zip(*found, strict=True)
    return a, b, c


def _joined(
    counts: Rows,
    target: np.ndarray,
    extra: tuple[Sequence[int], Sequence[int], Sequence[float]],
    width: int,
) -> Rows:
    owner = np.repeat(np.arange(len(counts)), np.diff(counts.indptr))
    rows = np.concatenate([owner, extra[0]])
    # A stable sort: the entries of a row are added up in one order, in a batch as alone.
    order = np.argsort(rows, kind="stable")
    columns = np.concatenate([target[counts.indices], extra[1]]).astype(np.int32)[order]
    values = np.concatenate([counts.values, extra[2]]).astype(np.float32)[order]
    indptr = np.searchsorted(rows[order], np.arange(len(counts) + 1))
    unsorted = Rows(indptr.astype(np.int64), columns, values, width)
    return unsorted.remap_columns(np.arange(width, dtype=np.int32), width)


def split_terms(
    terms: Sequence[TermShare], counts: Counts, corrected: Corrected
) -> list[TermShare]:
    """Split the terms of corrected counts by what was typed: `comand → command` is a term of its own.

    Args:
        terms: Of the corrected counts: each of their words, then phrases.
        counts: Of the query as typed.
    """
    [column] = counts.columns
    tf = {counts.words[i]: n for i, n in zip(column.indices.tolist(), column.values, strict=True)}
    added: dict[str, dict[str, float]] = {}
    for typed, several in corrected.found.items():
        for near in several:
            labels = added.setdefault(near.word, {})
            labels[f"{typed} → {near.word}"] = tf[typed] * near.probability
    by_word = dict(zip(corrected.words, terms, strict=False))
    total = {word: tf.get(word, 0.0) + sum(labels.values()) for word, labels in added.items()}
    own = [
        _part(by_word[word], word, tf.get(word, 0.0) / total.get(word, 1.0))
        if word in total
        else by_word[word]
        for word in counts.words
    ]
    known = [
        _part(by_word[word], label, amount / total[word])
        for word, labels in added.items()
        for label, amount in labels.items()
    ]
    return [*own, *known, *terms[len(corrected.words) :]]


def _part(term: TermShare, label: str, share: float) -> TermShare:
    return TermShare(label, term.dense * np.float32(share), term.feature, term.weight * share)
