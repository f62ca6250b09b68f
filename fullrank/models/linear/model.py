"""A compiled model of the linear family, and its stored form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fullrank.kernels import encode
from fullrank.kernels.compiler import direct
from fullrank.kernels.encode import QueryTables
from fullrank.kernels.index import read_only
from fullrank.models.contract import Known, Model, Parts, are_in, lexical_shares
from fullrank.models.corrections import Corrected, correct, split_terms
from fullrank.models.linear.shares import dense_shares, terms
from fullrank.models.linear.sides import DenseSide, SparseSide, Tower
from fullrank.models.reading import DocumentReading, Reading
from fullrank.models.words import Words
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Encoded, Float32, Float64, Mask, Rows
from fullrank.storage.strings import Lexicon
from fullrank.text.features import Counts, TextWords, Vocabulary, count_corpus
from fullrank.text.forms import NO_FORMS, FormTables
from fullrank.text.phrases import Phrases
from fullrank.text.sequences import TextCounter
from fullrank.text.spelling import MAX_WORDS, variants_of
from fullrank.text.words import Bigrams, count_words, is_bigram

KIND = "linear"
encode_known = direct(encode.encode_known)
_NO_SLOTS = np.zeros(0, np.uint64)
_NO_BIAS = np.zeros(1, np.float32)
_NO_BIAS.setflags(write=False)


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """A compiled model of the family.

    Attributes:
        settings: JSON.
            fields: [[name, [source fields]]], the fields of a document.
            field_weights: The weight of each in φ(d); 0 leaves a field to the lexical part.
            phrase_field: The source field whose whole text is a phrase, or "".
            ngrams: 2 counts known 2-grams besides words in φ; 1 (or absent) words alone.
            unit: Divide u and v by their norms (LSI and other projections).
            dense_scale: A factor on u: α of the mix with tf-idf, γ of a cosine.
            bias: The bias of a document added later.
            spelling: Discount of known words that replace an unknown word of a query; 0 (or absent) corrects nothing.
    """

    settings: dict[str, Any]
    query: DenseSide
    document: DenseSide
    sparse: SparseSide

    @cached_property
    def n_dense(self) -> int:
        return self.query.width

    @property
    def n_sparse(self) -> int:
        return self.sparse.width

    @cached_property
    def config(self) -> dict[str, Any]:
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
        # Written only if set, so that the settings of older bundles do not change.
        if self.sparse.forms is not None:
            sparse |= {"folded": self.sparse.folded, "plurals": self.sparse.plurals}
        if self.query.counted:
            dense["counted"] = True
        if self.query.tower.skip:
            dense["skip"] = True
        return {"kind": KIND, **self.settings, "sparse": sparse, "dense": dense}

    @cached_property
    def _counter(self) -> TextCounter:
        """The function that counts the words of a text, and its 2-grams if the model has any."""
        if self.settings.get("ngrams", 1) == 1:
            return count_words
        known = {*self.query.words.words, *self.document.words.words}
        return Bigrams(filter(is_bigram, known)).count

    @cached_property
    def _words(self) -> Words | None:
        """What unknown words of queries are corrected by."""
        discount = self.settings.get("spelling", 0.0)
        if not discount:
            return None
        tables = [(v, np.exp(float(idf.max(initial=0.0)) - idf)) for v, idf in self._idf]
        return Words(tables, self.sparse.sources, discount)

    @property
    def _idf(self) -> list[tuple[Vocabulary, Float32]]:
        """The words of the dense and of the lexical part, and the idf of each."""
        sides = (self.query, self.sparse)
        return [(side.words, side.idf[: len(side.words.words)]) for side in sides]

    @property
    def known(self) -> Known:
        tables = [
            (v, np.exp(idf.max(initial=0.0) - idf.astype(np.float64))) for v, idf in self._idf
        ]
        side = self.sparse
        return Known(tables, side.sources, tables[1:], side.forms, side.idf)

    def corrected(self, words: Sequence[str], counts: Rows) -> Corrected | None:
        """Correct the unknown words of counted queries; None if there is nothing to correct."""
        return None if self._words is None else correct(self._words, words, counts)

    def corrections(self, text: str) -> dict[str, str]:
        """Map each word of a query that is corrected to the known word that was most likely meant.

        Example:
            >>> bundle = open_bundle(path)
            >>> bundle.model.corrections("red aple")
            {'aple': 'apple'}
        """
        if self._words is None:
            return {}
        near = {word: self._words.corrections(word) for word in count_words(text)}
        return {word: several[0].word for word, several in near.items() if several}

    def _count(self, columns: Sequence[Sequence[str]]) -> Counts:
        return count_corpus(columns, counter=self._counter)

    @cached_property
    def _tables(self) -> QueryTables | None:
        """What a query of known words is encoded by, in one step; None for a model that does not read words alone."""
        dense, side = self.query, self.sparse
        if (
            side.scheme != "bm25"
            or side.variants
            or dense.tower
            or self._counter is not count_words
        ):
            return None
        known, phrases, of_dense = side.words.known, side.phrases, dense.words.known
        is_same = of_dense is known or not self.n_dense
        tables = read_only(
            QueryTables(
                known.blob, known.offsets, known.slots,
                phrases.table.blob, phrases.table.offsets, phrases.beginnings,
                *side.known_forms, NO_FORMS if side.forms is None else side.forms.keys,
                side.idf, dense.factor, dense.table,
                of_dense.blob, of_dense.offsets, _NO_SLOTS if is_same else of_dense.slots,
                float(side.k3), side.terms, MAX_WORDS,
                dense.terms, int(not dense.counted), len(dense.trigrams),
            )
        )  # fmt: skip
        # Checks the types of all arrays, which a direct call does not.
        nothing: Any = tuple(TextWords.of(""))
        encode.encode_known(nothing, side.idf[:0], tables)
        return tables

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        reading = Reading.of(texts)
        if len(reading) == 1 and self._tables is not None:
            typed = reading.typed
            weights = typed.amounts if self.query.counted else reading.damped
            is_done, u, indptr, indices, values = encode_known(typed, weights, self._tables)
            if is_done:
                sparse = Rows(indptr, indices, values, self.n_sparse)
                return Encoded(self._scaled(u) if self.n_dense else u, sparse, _NO_BIAS)
        counts = reading.counts if self._counter is count_words else self._count([reading])
        sequences = self.sparse.sequences(reading)
        return self.encode_query_counts(counts.words, counts.columns[0], sequences)

    def encode_query_counts(self, words: Sequence[str], counts: Rows, sequences: Rows) -> Encoded:
        """Encode queries from their counts and from what SparseSide.sequences returned."""
        return self._encode(self.corrected(words, counts), words, counts, sequences)

    def _encode(
        self, corrected: Corrected | None, words: Sequence[str], counts: Rows, sequences: Rows
    ) -> Encoded:
        of_dense = counts
        if corrected is not None:
            words, counts, of_dense = corrected.words, corrected.lexical, corrected.dense
        dense = None
        if self.n_dense:
            dense = self._scaled(self.query.embed_queries(words, of_dense))
        sparse = self.sparse.query(words, counts, sequences)
        if dense is None:
            dense = np.zeros((len(counts), 0), np.float32)
        return Encoded(dense, sparse, np.zeros(len(counts), np.float32))

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        reading = DocumentReading.of(documents)
        titles = reading.texts([self.settings["phrase_field"]])
        counts = self._count_documents(reading)
        return self.encode_document_counts(counts, self.sparse.phrases.own(titles))

    def _count_documents(self, reading: DocumentReading) -> Counts:
        """Count the words of documents, one column per field."""
        columns = [sources for _, sources in self.settings["fields"]]
        if self._counter is count_words:
            return reading.counts(columns)
        return self._count([*map(reading.texts, columns)])

    def encode_document_counts(self, counts: Counts, own: Rows) -> Encoded:
        """Encode documents from one counted column per field; `own` has the phrase of each title."""
        fields = counts.columns[: len(self.settings["fields"])]
        dense = None
        if self.n_dense:
            weights = self.settings["field_weights"]
            dense = self.finish(self.document.embed(counts.words, fields, weights))
        target = self.sparse.words.rows(counts.words)
        z = [self.sparse.field(target, rows, f) for f, rows in enumerate(fields)]
        return Encoded.from_rows(self.sparse.document(z, own), dense, self.settings["bias"])

    def query_terms(self, text: str) -> list[TermShare]:
        """Each word, then the phrases."""
        return self.count_terms(self._count([[text]]), self.sparse.sequences([text]))

    def count_terms(self, counts: Counts, sequences: Rows) -> list[TermShare]:
        """Split a query that is already counted."""
        [typed] = counts.columns
        corrected = self.corrected(counts.words, typed)
        encoded = self._encode(corrected, counts.words, typed, sequences)
        side, scaled = self.sparse, self._scaled
        if corrected is None:
            return terms(self.query, side, scaled, counts, typed, sequences, encoded)
        known = Counts(corrected.words, [corrected.lexical])
        found = terms(self.query, side, scaled, known, corrected.dense, sequences, encoded)
        return split_terms(found, counts, corrected)

    def columns_of(self, word: str) -> list[int]:
        own = self.sparse.words.row(word)
        others = [row for row, _ in variants_of(word, self.sparse.sources)]
        return [row for row in [own, *others] if row >= 0]

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        """Return which words a query asks for: its own, other forms of them, corrections, parts and whole compounds."""
        reading = Reading.of([text])
        counts = reading.counts
        asked = set(counts.words)
        corrected = self.corrected(counts.words, counts.columns[0])
        known = self.sparse.words.words
        if corrected is not None:
            asked.update(corrected.words)
        if len(counts.words) <= MAX_WORDS:
            for word in counts.words:
                asked.update(known[row] for row, _ in variants_of(word, self.sparse.sources))
        joined = self.sparse.sequences(reading).distinct()
        asked.update(known[row] for row in joined if row < len(known))
        return are_in(words, asked)

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        shares = lexical_shares(self.sparse.words.rows(words), query, encoded)
        if self.n_dense:
            counts = self._count_documents(DocumentReading.of(documents))
            weights, unit = self.settings["field_weights"], self.settings["unit"]
            u = query.dense[0]
            shares += dense_shares(self.document, self.finish, unit, u, counts, weights, words)
        return shares

    def _scaled(self, dense: Float32) -> Float32:
        """Scale the rows of the query side by dense_scale."""
        scale = self.settings["dense_scale"]
        return self.finish(dense) if scale == 1 else self.finish(dense) * np.float32(scale)

    def finish(self, dense: Float32) -> Float32:
        """Divide rows by their norms if the setting `unit` is on."""
        if not self.settings["unit"]:
            return dense
        norm = np.sqrt(np.add.reduce(np.square(dense), axis=1, keepdims=True))
        norm[norm == 0] = 1
        return np.ascontiguousarray(dense / norm)

    def parts(self) -> Parts:
        arrays: dict[str, np.ndarray] = {
            "sparse.idf": self.sparse.idf,
            "sparse.D": self.sparse.D,
            "phrases.P": self.sparse.P,
            "phrases.beginnings": self.sparse.phrases.beginnings,
        }
        strings: dict[str, Sequence[str]] = {
            "sparse.words": self.sparse.words.known,
            "phrases": self.sparse.phrases.phrases,
        }
        if self.sparse.forms is not None:
            strings |= {"compounds": self.sparse.compounds, **self.sparse.forms.tables.strings()}
            arrays |= self.sparse.forms.tables.arrays()
        for name, side in (("query", self.query), ("document", self.document)):
            arrays[f"{name}.idf"] = side.idf
            arrays[f"{name}.table"] = side.table
            arrays[f"{name}.trigrams"] = side.trigram_table
            strings[f"{name}.words"] = side.words.known
            strings[f"{name}.trigrams"] = side.trigrams.known
            arrays |= {f"{name}.{part}": array for part, array in side.tower.arrays()}
        return Parts(self.config, arrays, strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> LinearModel:
        settings = {k: v for k, v in parts.config.items() if k not in ("kind", "sparse", "dense")}
        dense, sparse = parts.config["dense"], dict(parts.config["sparse"])
        sides: list[DenseSide] = []
        known: list[Vocabulary] = []
        for name in ("query", "document"):
            side = DenseSide(
                _vocabulary(parts, f"{name}.words", known),
                parts.arrays[f"{name}.idf"],
                parts.arrays[f"{name}.table"],
                _vocabulary(parts, f"{name}.trigrams", known),
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
        words = _vocabulary(parts, "sparse.words", known, sparse.pop("buckets"))
        k3 = sparse.pop("k3")
        side_s = SparseSide(
            words,
            parts.arrays["sparse.idf"],
            parts.arrays["sparse.D"],
            Phrases(parts.strings["phrases"], parts.arrays.get("phrases.beginnings")),
            parts.arrays["phrases.P"],
            sparse.pop("scheme"),
            k3=np.inf if k3 is None else k3,
            mean_lengths=tuple(sparse.pop("mean_lengths")),
            compounds=parts.strings.get("compounds", ()),
            form_tables=FormTables.stored(parts.arrays, parts.strings, len(words.words)),
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


def _vocabulary(parts: Parts, name: str, known: list[Vocabulary], buckets: int = 0) -> Vocabulary:
    """Make a vocabulary of a table of strings; equal tables share one, to save memory."""
    words = Lexicon.of(parts.strings[name])
    for other in known:
        if other.known.is_same(words):
            if other.buckets == buckets:
                return other
            words = other.known
    known.append(Vocabulary(words, buckets))
    return known[-1]


def _layers(parts: Parts, name: str, first: int) -> list[Float32]:
    """Return the arrays named `name` + first, first + 1, … up to the first that is missing."""
    found: list[Float32] = []
    while f"{name}{first + len(found)}" in parts.arrays:
        found.append(parts.arrays[f"{name}{first + len(found)}"])
    return found


def _check(array: Any, rows: int, name: str) -> None:
    if array.shape[0] != rows:
        raise ValueError(f"{name} has {array.shape[0]} rows where {rows} are needed")
