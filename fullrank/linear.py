"""The linear family: every model whose score is qᵀWd with W = UᵀV + D, per field and with a bias.

    u = U φ(q)          φ: unit tf-idf vector over words, plus the letter trigrams of each word
    v = V φ(d)          or layers above U and V (fullrank.towers): then u is not linear in φ
    s = term weights of q                 words, hash buckets, phrases
    t = Σ_fields D_f · weights of d's field f  (+ the weight of the phrase that d's title is)

A word's row of the stored table already holds its trigrams (U_w + Σ_g U_g / √|trigrams|), so they cost nothing while
serving and place unseen words too. tf-idf, BM25, LSI and all of SSI are settings of this one class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.bigrams import Bigrams, is_bigram
from fullrank.counting import TextCounter
from fullrank.encoding import Encoded, Float32
from fullrank.features import (
    Counts,
    Rows,
    Vocabulary,
    bm25,
    count_corpus,
    moved,
    rows_of,
    saturate,
    strongest,
    tfidf,
    trigram_rows,
    unit,
)
from fullrank.model import Parts, TermShare, field_text
from fullrank.phrases import Phrases
from fullrank.text import count_words
from fullrank.towers import Tower

KIND = "linear"


def _sum(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return rows_of(sp.csr_array(sum((p.csr() for p in parts[1:]), parts[0].csr())))


@dataclass(frozen=True, eq=False)
class DenseSide:
    """One tower: φ and the table that multiplies it.

    words          the vocabulary of this side
    idf            float32 (W + 1,): of each word, and last of unseen words
    table          float32 (W, N): U or V with the trigrams of each word added
    trigrams       known letter trigrams; none leaves unseen words out
    trigram_table  float32 (G, N)
    terms          keep the strongest so many words of a text; 0 keeps all
    counted        φ is not a tf-idf unit vector but counts: tf of a word times the root of its number
                   of trigrams, so that every trigram counts as often as it occurs
    tower          the layers above the table; a text without features stays at zero under them
    """

    words: Vocabulary
    idf: Float32
    table: Float32
    trigrams: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    trigram_table: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    terms: int = 0
    counted: bool = False
    tower: Tower = field(default_factory=Tower)

    @property
    def width(self) -> int:
        """N."""
        return self.tower.width(self.table.shape[1])

    def features(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> tuple[Rows, list[str]]:
        """φ of texts given as counts over ``words``, one matrix and weight per field.

        Returns unit rows over the vocabulary followed by the unseen words, and those words, ascending.
        A field of weight 0 is left out.
        """
        known = len(self.words)
        target = self.words.rows(words)
        unseen: list[str] = []
        if len(self.trigrams):
            missing = np.flatnonzero(target < 0)
            unseen = [words[i] for i in missing.tolist()]
            target[missing] = known + np.arange(len(missing), dtype=np.int32)
        factor = self._factor(unseen)
        weigh = _times if self.counted else tfidf
        parts = []
        for rows, weight in zip(columns, weights, strict=True):
            if not weight:
                continue
            part = weigh(moved(rows, target, len(factor)), factor)
            parts.append(part.with_values(part.values * np.float32(weight)))
        found = strongest(_sum(parts), self.terms)
        return found if self.counted else unit(found), unseen

    def _factor(self, unseen: Sequence[str]) -> Float32:
        """idf, or the factors that make counts of trigrams, of the vocabulary and of unseen words."""
        known = len(self.words)
        if not self.counted:
            more = np.full(len(unseen), self.idf[known], np.float32)
            return np.concatenate([self.idf[:known], more])
        if not len(self.trigrams):
            return np.ones(known, np.float32)
        return np.concatenate([self._roots, _trigram_roots(unseen)])

    @cached_property
    def _roots(self) -> Float32:
        return _trigram_roots(self.words.words)

    def rows_for(self, unseen: Sequence[str]) -> Float32:
        """The vectors of unseen words, made of their trigrams, float32 (len(unseen), N)."""
        return np.asarray(trigram_rows(unseen, self.trigrams).csr() @ self.trigram_table)

    def embed(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> Float32:
        """U φ, or what the tower makes of it, float32 (B, N)."""
        x, unseen = self.features(words, columns, weights)
        matrix = x.csr()
        dense = np.asarray(matrix[:, : len(self.words)] @ self.table)
        if unseen:
            dense = dense + np.asarray(matrix[:, len(self.words) :] @ self.rows_for(unseen))
        if self.tower:
            dense = self.tower.apply(np.asarray(dense, np.float32))
            dense[np.diff(x.indptr) == 0] = 0
        return np.ascontiguousarray(dense, np.float32)


def _times(counts: Rows, factor: Float32) -> Rows:
    return counts.with_values(counts.values * factor[counts.indices])


def _trigram_roots(words: Sequence[str]) -> Float32:
    """√ of the number of trigrams of ``#word#``, which is the word's number of letters."""
    return np.sqrt(np.array([len(word) for word in words], np.float32))


@dataclass(frozen=True, eq=False)
class SparseSide:
    """The exact-match part: term weights of queries, and of documents per field with D folded in.

    words     the documents' vocabulary, hash buckets included: the only words both sides share
    idf       float32 (W,)
    D         float32 (fields, W): the diagonals
    phrases   titles as features, after the words
    P         float32 (phrases,): their weights, idf and diagonal in one
    scheme    "bm25", "tfidf" or "none"
    terms     keep the so many words of a query that weigh most (weight times idf); 0 keeps all
    """

    words: Vocabulary
    idf: Float32
    D: Float32
    phrases: Phrases
    P: Float32
    scheme: str
    k1: float = 1.2
    b: float = 0.75
    k3: float = 1.0
    terms: int = 0
    mean_lengths: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """F."""
        return len(self.words) + len(self.phrases)

    def query(self, words: Sequence[str], counts: Rows, phrases: Rows) -> Rows:
        """s of each query; ``counts`` over ``words``, ``phrases`` over the known phrases."""
        found = moved(counts, self.words.rows(words), len(self.words))
        if self.scheme == "none":
            return _beside(_empty_like(found), _empty_like(phrases))
        rows = saturate(found, self.k3) if self.scheme == "bm25" else tfidf(found, self.idf)
        if self.terms:
            kept = strongest(rows.with_values(rows.values * self.idf[rows.indices]), self.terms)
            rows = kept.with_values(kept.values / self.idf[kept.indices])
        return _beside(rows, saturate(phrases, self.k3))

    def field(self, words: Sequence[str], counts: Rows, index: int) -> Rows:
        """z_f: the weights of field ``index``, before its diagonal, over the words alone."""
        found = moved(counts, self.words.rows(words), len(self.words))
        if self.scheme == "none":
            return _empty_like(found)
        if self.scheme == "tfidf":
            return tfidf(found, self.idf)
        mean = self.mean_lengths[index]
        return bm25(found, self.idf, k1=self.k1, b=self.b, mean_length=mean)

    def document(self, fields: Sequence[Rows], own: Rows) -> Rows:
        """t = Σ_f D_f z_f, then the phrase each document's title is."""
        parts = [z.with_values(z.values * self.D[f, z.indices]) for f, z in enumerate(fields)]
        return _beside(_sum(parts), own.with_values(own.values * self.P[own.indices]))


def _empty_like(rows: Rows) -> Rows:
    return Rows(
        np.zeros_like(rows.indptr), np.zeros(0, np.int32), np.zeros(0, np.float32), rows.width
    )


def _beside(left: Rows, right: Rows) -> Rows:
    """Columns of two matrices side by side."""
    if right.width == 0:
        return left
    return rows_of(sp.csr_array(sp.hstack([left.csr(), right.csr()], format="csr")))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A compiled member of the family. ``settings`` is JSON:

    fields         [[name, [source fields]]]: how a document is cut
    field_weights  weight of each in φ(d); 0 leaves a field to the exact-match part
    query_fields   how a document reads as a query
    phrase_field   the source field whose whole text is a phrase, or ""
    ngrams         2: known 2-grams count beside words in φ; 1 (or absent): words alone
    unit           divide u and v by their norms (LSI and other projections)
    dense_scale    factor on u: α of the mix with tf-idf, γ of a cosine
    bias           the bias of a document added later
    """

    settings: dict[str, Any]
    query: DenseSide
    document: DenseSide
    sparse: SparseSide

    @property
    def n_dense(self) -> int:
        """N."""
        return self.query.width

    @property
    def n_sparse(self) -> int:
        """F."""
        return self.sparse.width

    @cached_property
    def config(self) -> dict[str, Any]:
        """JSON settings of the whole model."""
        sparse = {
            "scheme": self.sparse.scheme,
            "k1": self.sparse.k1,
            "b": self.sparse.b,
            "k3": None if np.isinf(self.sparse.k3) else self.sparse.k3,
            "terms": self.sparse.terms,
            "mean_lengths": list(self.sparse.mean_lengths),
            "buckets": self.sparse.words.buckets,
        }
        dense = {"query_terms": self.query.terms, "document_terms": self.document.terms}
        # Said only where it is so: bundles of before the towers stay what they were.
        if self.query.counted:
            dense["counted"] = True
        if self.query.tower.skip:
            dense["skip"] = True
        return {"kind": KIND, **self.settings, "sparse": sparse, "dense": dense}

    @cached_property
    def _counter(self) -> TextCounter:
        """Counts the words of a text, and its 2-grams where the model knows some."""
        if self.settings.get("ngrams", 1) == 1:
            return count_words
        known = {*self.query.words.words, *self.document.words.words}
        return Bigrams(filter(is_bigram, known)).count

    def _count(self, columns: Sequence[Sequence[str]]) -> Counts:
        return count_corpus(columns, counter=self._counter)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """u and s of each text."""
        counts = self._count([texts])
        phrases = self.sparse.phrases.rows(texts)
        return self.encode_query_counts(counts.words, counts.columns[0], phrases)

    def encode_query_counts(self, words: Sequence[str], counts: Rows, phrases: Rows) -> Encoded:
        """As ``encode_queries``, from texts already counted."""
        if self.n_dense:
            dense = self._finish(self.query.embed(words, [counts], [1.0]))
            dense *= np.float32(self.settings["dense_scale"])
        else:
            dense = np.zeros((len(counts), 0), np.float32)
        return _encoded(dense, self.sparse.query(words, counts, phrases), 0.0)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """v, t and the default bias of each document."""
        counts = self._count(self.columns(documents))
        titles = [field_text(d, [self.settings["phrase_field"]]) for d in documents]
        return self.encode_document_counts(counts, self.sparse.phrases.own(titles))

    def encode_document_counts(self, counts: Counts, own: Rows) -> Encoded:
        """As ``encode_documents``, from one counted column per field."""
        fields = counts.columns[: len(self.settings["fields"])]
        if self.n_dense:
            weights = self.settings["field_weights"]
            dense = self._finish(self.document.embed(counts.words, fields, weights))
        else:
            dense = np.zeros((len(own), 0), np.float32)
        z = [self.sparse.field(counts.words, rows, f) for f, rows in enumerate(fields)]
        return _encoded(dense, self.sparse.document(z, own), self.settings["bias"])

    def columns(self, documents: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        """One column of texts per field."""
        fields = self.settings["fields"]
        return [[field_text(d, sources) for d in documents] for _, sources in fields]

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query."""
        return field_text(fields, self.settings["query_fields"])

    def query_terms(self, text: str) -> list[TermShare]:
        """Each word's share of u and its sparse weight; then the phrases."""
        return self.count_terms(self._count([[text]]), self.sparse.phrases.rows([text]))

    def count_terms(self, counts: Counts, phrases: Rows) -> list[TermShare]:
        """As ``query_terms``, from one text already counted."""
        encoded = self.encode_query_counts(counts.words, counts.columns[0], phrases)
        weight = dict(zip(encoded.indices.tolist(), encoded.weights.tolist(), strict=True))
        shares = np.zeros((len(counts.words), self.n_dense), np.float32)
        if self.n_dense:
            shares = self._shares(counts, encoded.dense[0])
        rows = self.sparse.words.rows(counts.words)
        times = np.zeros(len(rows))
        times[counts.columns[0].indices] = counts.columns[0].values
        # Words of one bucket are one feature: each has the part of its weight that it occurs.
        together = np.bincount(rows[rows >= 0], times[rows >= 0], len(self.sparse.words))
        terms = []
        for word, share, row, tf in zip(
            counts.words, shares, rows.tolist(), times.tolist(), strict=True
        ):
            part = tf / together[row] if row >= 0 else 0.0
            terms.append(TermShare(word, share, row, weight.get(row, 0.0) * part))
        first = len(self.sparse.words)
        nothing = np.zeros(self.n_dense, np.float32)
        for feature in sorted(f for f in weight if f >= first):
            phrase = self.sparse.phrases.phrases[feature - first]
            terms.append(TermShare(f"“{phrase}”", nothing, feature, weight[feature]))
        return terms

    def _shares(self, counts: Counts, u: Float32) -> Float32:
        """Row i: the part of u that word i brought; the rows add up to u."""
        side = self.query
        x, unseen = side.features(counts.words, counts.columns, [1.0])
        vectors = side.table[x.indices[x.indices < len(side.words)]]
        if unseen:
            late = x.indices[x.indices >= len(side.words)] - len(side.words)
            vectors = np.concatenate([vectors, side.rows_for(unseen)[late]])
        parts = vectors * x.values[:, None]
        if side.tower:
            parts = self._without_each(parts, u)
        else:
            total = np.linalg.norm(parts.sum(0)) if len(parts) else 0.0
            parts = parts * np.float32(np.linalg.norm(u) / total if total else 0.0)
        place = {word: i for i, word in enumerate(counts.words)}
        shares = np.zeros((len(place), self.n_dense), np.float32)
        for part, index in zip(parts, x.indices.tolist(), strict=True):
            known = index < len(side.words)
            word = side.words.words[index] if known else unseen[index - len(side.words)]
            shares[place[word]] = part
        return shares

    def _without_each(self, parts: Float32, u: Float32) -> Float32:
        """Shares of u of a query under a tower, given each word's part of the table's sum.

        δ_i = u − u without word i. They do not add up to u, as u is not linear: what is left over, u − Σ δ, is
        shared out in proportion to ‖δ_i‖.
        """
        if not len(parts):
            return np.zeros((0, len(u)), np.float32)
        others = self._finish(self.query.tower.apply(parts.sum(0) - parts))
        if len(parts) == 1:
            others[:] = 0
        change = u - others * np.float32(self.settings["dense_scale"])
        size = np.linalg.norm(change, axis=1, keepdims=True)
        share = size / size.sum() if size.any() else np.full_like(size, 1 / len(size))
        return np.asarray(change + share * (u - change.sum(0)), np.float32)

    def _finish(self, dense: Float32) -> Float32:
        if not self.settings["unit"]:
            return dense
        norm = np.sqrt(np.add.reduce(np.square(dense), axis=1, keepdims=True))
        norm[norm == 0] = 1
        return np.ascontiguousarray(dense / norm)

    def scorer(self, documents: Encoded) -> None:
        """None: the score is the inner product."""

    def parts(self) -> Parts:
        """What a bundle stores."""
        arrays = {
            "sparse.idf": self.sparse.idf,
            "sparse.D": self.sparse.D,
            "phrases.P": self.sparse.P,
        }
        strings: dict[str, Sequence[str]] = {
            "sparse.words": self.sparse.words.words,
            "phrases": self.sparse.phrases.phrases,
        }
        for name, side in (("query", self.query), ("document", self.document)):
            arrays[f"{name}.idf"] = side.idf
            arrays[f"{name}.table"] = side.table
            arrays[f"{name}.trigrams"] = side.trigram_table
            strings[f"{name}.words"] = side.words.words
            strings[f"{name}.trigrams"] = side.trigrams.words
            arrays |= {f"{name}.{part}": array for part, array in side.tower.arrays()}
        return Parts(self.config, arrays, strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> LinearModel:
        """The inverse of ``parts``. Raises ValueError when shapes do not fit together."""
        settings = {k: v for k, v in parts.config.items() if k not in ("kind", "sparse", "dense")}
        dense, sparse = parts.config["dense"], dict(parts.config["sparse"])
        sides = []
        for name in ("query", "document"):
            side = DenseSide(
                Vocabulary(list(parts.strings[f"{name}.words"])),
                parts.arrays[f"{name}.idf"],
                parts.arrays[f"{name}.table"],
                Vocabulary(list(parts.strings[f"{name}.trigrams"])),
                parts.arrays[f"{name}.trigrams"],
                dense[f"{name}_terms"],
                dense.get("counted", False),
                Tower(
                    _layers(parts, f"{name}.W", 1),
                    _layers(parts, f"{name}.b", 0),
                    dense.get("skip", False),
                ),
            )
            _check(side.table, len(side.words), f"{name}.table")
            _check(side.idf, len(side.words) + 1, f"{name}.idf")
            _check(side.trigram_table, len(side.trigrams), f"{name}.trigrams")
            sides.append(side)
        words = Vocabulary(list(parts.strings["sparse.words"]), sparse.pop("buckets"))
        k3 = sparse.pop("k3")
        side_s = SparseSide(
            words,
            parts.arrays["sparse.idf"],
            parts.arrays["sparse.D"],
            Phrases(list(parts.strings["phrases"])),
            parts.arrays["phrases.P"],
            sparse.pop("scheme"),
            k3=np.inf if k3 is None else k3,
            mean_lengths=tuple(sparse.pop("mean_lengths")),
            **sparse,
        )
        _check(side_s.idf, len(words), "sparse.idf")
        _check(side_s.D.T, len(words), "sparse.D")
        _check(side_s.P, len(side_s.phrases), "phrases.P")
        if side_s.D.shape[0] != len(settings["fields"]):
            raise ValueError("sparse.D has not one row per field")
        if sides[0].width != sides[1].width:
            raise ValueError("query and document differ in width")
        return cls(settings, sides[0], sides[1], side_s)


def _layers(parts: Parts, name: str, first: int) -> list[Float32]:
    """The arrays ``name`` followed by first, first + 1, … as far as there are any."""
    found: list[Float32] = []
    while f"{name}{first + len(found)}" in parts.arrays:
        found.append(parts.arrays[f"{name}{first + len(found)}"])
    return found


def _check(array: Any, rows: int, name: str) -> None:
    if array.shape[0] != rows:
        raise ValueError(f"{name} has {array.shape[0]} rows where {rows} are needed")


def _encoded(dense: Float32, rows: Rows, bias: float) -> Encoded:
    return Encoded(
        dense,
        rows.indptr,
        rows.indices,
        rows.values,
        rows.width,
        np.full(len(rows), bias, np.float32),
    )
