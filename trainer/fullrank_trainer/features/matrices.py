"""The matrices of a recipe's model, made from a counted collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.models.linear import DenseSide, LinearModel, SparseSide
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Int32, Int64, Rows
from fullrank.text.features import Vocabulary, bm25_idf
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.composition import Composition, Phi, composition, with_bigrams
from fullrank_trainer.features.corpus import (
    Corpus,
    Stack,
    blocks_of,
    document_frequency,
    stack_in_memory,
)
from fullrank_trainer.features.fields import Clicks, cut_fields
from fullrank_trainer.features.sides import dense_sides, known_trigrams, sparse_side
from fullrank_trainer.recipes.settings import ModelSettings

_COMPOSED = 1 << 19  # entries whose words become several trained rows at once


@dataclass(frozen=True, eq=False)
class Features:
    """The input of a fit. The sparse features F are words (and buckets), then phrases.

    Attributes:
        model: the model with empty tables, whose vocabularies made the matrices.
        query_composition, document_composition: which trained rows each word is made of.
        xq: φ of queries, (queries, trained rows).
        s: query weights, (queries, F).
        z: per field, document weights before the diagonal, (documents, F); phrases come last.
        document_phrases: which phrase each document's title is, (documents, phrases).
        lexical_rows: int32 (words,), the row of each in the lexical part; -1 where it has none.
        query_sequences: joined words and phrases of queries, (queries, F).
        mates: int64 (queries,): the document that each query is or describes; -1 if it has none.
    """

    settings: ModelSettings
    model: LinearModel
    query_composition: Composition
    document_composition: Composition
    xq: Rows
    xd: Phi
    s: Rows
    z: list[Rows]
    document_phrases: Rows
    query_ids: Sequence[str]
    words: Sequence[str]
    lexical_rows: Int32
    field_counts: list[Rows]
    query_counts: Rows
    query_sequences: Rows
    phrase_idf: Float32
    pairs: Pairs
    mates: Int64
    clicks: Clicks | None = None

    @property
    def documents(self) -> int:
        return len(self.document_phrases)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """The arrays of the matrices that steps and measurements read, which are large."""
        matrices = (self.xq, self.xd.words, self.s, *self.z)
        return [array for rows in matrices for array in rows.arrays]

    def fields_for_step(
        self, documents: Int64, queries: Int64, cold: npt.NDArray[np.bool_] | None = None
    ) -> list[tuple[Rows, Int64]]:
        """Return z of some documents as a step on some queries may see them: a matrix for each field, and rows.

        Clicked text leaves out the queries' own texts, and all of ``cold`` documents, bool (documents,).
        """
        found = [(rows, documents) for rows in self.z]
        if self.clicks is not None:
            f, side = len(self.field_counts) - 1, self.model.sparse
            rest = self.clicks.without(queries, documents, cold)
            own = _widen(side.field(self.lexical_rows, rest, f), self.s.width, 0)
            found[f] = own, np.arange(len(documents))
        return found


def build_features(
    corpus: Corpus,
    settings: ModelSettings,
    reporter: Reporter | None = None,
    stack: Stack = stack_in_memory,
) -> Features:
    """Build the matrices of a recipe's model; ``stack`` puts their blocks together. Raises TrainingError."""
    reporter = reporter or Reporter(quiet=True)
    trigrams = Vocabulary(known_trigrams(corpus, settings))
    # 2-grams are words of the dense part only. From here on they are counted like other words.
    corpus = with_bigrams(corpus, settings.bigrams, reporter)
    words, documents, queries = corpus.counts.words, corpus.documents, corpus.queries
    fields = cut_fields(corpus, settings, queries, len(documents))
    query, document = dense_sides(corpus, settings, documents, trigrams)
    sparse, document_phrases = sparse_side(corpus, settings, documents, fields)
    sequences = sparse.sequences(corpus.query_texts(corpus.sources))
    phrases = sequences.columns(len(sparse.words), sparse.width)
    phrase_idf = bm25_idf(document_frequency(phrases), len(phrases))
    query_composition = composition(corpus, settings, query.words.words, reporter)
    document_composition = composition(corpus, settings, document.words.words, reporter)
    # A setting that is off is not written, so that the settings of older bundles do not change.
    spelling = {"spelling": settings.spelling} if settings.spelling else {}
    facts = {
        "fields": [[name, sources] for name, sources in fields.names],
        "field_weights": fields.weights,
        "query_fields": list(corpus.sources),
        "phrase_field": fields.phrase_field,
        "ngrams": 2 if settings.bigrams else 1,
        "unit": settings.latent in ("lsi", "projection"),
        "dense_scale": 1.0,
        "bias": 0.0,
        **spelling,
    }
    model = LinearModel(facts, query, document, sparse)
    corrected = model.corrected(words, queries)
    asked, of_dense, of_lexical = words, queries, queries
    if corrected is not None:
        asked, of_dense, of_lexical = corrected.words, corrected.dense, corrected.lexical
    if settings.latent == "none":
        xq, xd = Rows.empty(0, 0), Phi(Rows.empty(0, 0))
    else:
        xq = composed(query_composition, query, asked, [of_dense], [1.0], stack)
        given = words, fields.counts, fields.weights
        if len(document.trigrams) and settings.hashing == "none":
            xd = _in_two_steps(document_composition, document, *given, stack)
        else:
            xd = Phi(composed(document_composition, document, *given, stack))
    lexical_rows = sparse.words.rows(words)
    s = stack(sparse.query(asked, *block) for block in blocks_of([of_lexical, sequences]))
    z = _field_matrices(sparse, lexical_rows, fields.counts, document_phrases, phrase_idf, stack)
    # A copy lacks what was built to find forms of words, which training does not need.
    model = replace(model, sparse=replace(sparse))
    return Features(
        settings, model, query_composition, document_composition, xq, xd, s, z, document_phrases,
        corpus.query_ids, words, lexical_rows, fields.counts, queries, sequences, phrase_idf,
        corpus.pairs, corpus.mates, fields.clicks,
    )  # fmt: skip


def composed(
    composition: Composition,
    side: DenseSide,
    words: Sequence[str],
    columns: Sequence[Rows],
    weights: Sequence[float],
    stack: Stack = stack_in_memory,
) -> Rows:
    """Return φ of texts over trained rows."""

    def blocks() -> Iterator[Rows]:
        compose = None
        for block in blocks_of(columns, _COMPOSED):
            x, unseen = side.features(words, block, weights)
            compose = compose or composition.composer(side, unseen)
            yield compose(x)

    return stack(blocks())


def _in_two_steps(
    composition: Composition,
    side: DenseSide,
    words: Sequence[str],
    columns: Sequence[Rows],
    weights: Sequence[float],
    stack: Stack,
) -> Phi:
    unseen: list[str] = []

    def blocks() -> Iterator[Rows]:
        nonlocal unseen
        for block in blocks_of(columns):
            x, unseen = side.features(words, block, weights)
            yield x

    x = stack(blocks())
    identity = Rows(
        np.arange(x.width + 1), np.arange(x.width, dtype=np.int32), np.ones(x.width, np.float32), x.width
    )  # fmt: skip
    return Phi(x, composition.composer(side, unseen)(identity))


def _field_matrices(
    sparse: SparseSide,
    target: Int32,
    counts: list[Rows],
    document_phrases: Rows,
    phrase_idf: Float32,
    stack: Stack,
) -> list[Rows]:
    z = []
    for f, rows in enumerate(counts):
        weights = stack(sparse.field(target, block, f) for [block] in blocks_of([rows]))
        z.append(_widen(weights, sparse.width, 0))
    if len(sparse.phrases):
        values = document_phrases.values * phrase_idf[document_phrases.indices]
        weighted = document_phrases.with_values(values)
        z.append(_widen(weighted, sparse.width, len(sparse.words)))
    return z


def _widen(rows: Rows, width: int, shift: int) -> Rows:
    indices = rows.indices + np.int32(shift) if shift else rows.indices
    return Rows(rows.indptr, indices, rows.values, width)
