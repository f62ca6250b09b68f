"""Choose the vocabulary of each side of a model and compute its idf weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from fullrank.models.linear import DenseSide, SparseSide
from fullrank.storage.encoding import Float32, Int64, Rows
from fullrank.storage.strings import StringTable
from fullrank.text.compounds import parts_of, title_forms
from fullrank.text.features import Vocabulary, bm25_idf, tfidf_idf
from fullrank.text.phrases import Phrases
from fullrank.text.words import trigrams
from fullrank_trainer.features.composition import single_words, training_frequency
from fullrank_trainer.features.corpus import Corpus, document_frequency
from fullrank_trainer.features.fields import HEAVY, TextFields
from fullrank_trainer.recipes.settings import ModelSettings

# trigrams = "auto": letter trigrams help queries of a sentence; whole articles have enough words.
_SHORT_QUERY_WORDS = 40


@dataclass(frozen=True, eq=False)
class Frequencies:
    """In how many texts each word occurs, and how many texts there are; 2-grams included."""

    words: Int64
    texts: int

    def idf(self) -> Float32:
        """Return the idf of each word, and last the idf of a word that no text has."""
        return tfidf_idf(np.append(self.words, 0), self.texts)


def training_frequencies(corpus: Corpus) -> Frequencies:
    """Count the documents, and the training queries if they are others."""
    are_queries = corpus.collection.documents_are_queries
    texts = len(corpus.documents) + (0 if are_queries else len(corpus.pairs.queries))
    return Frequencies(training_frequency(corpus), texts)


def dense_sides(
    corpus: Corpus, settings: ModelSettings, documents: Rows, known_trigrams: Vocabulary
) -> tuple[DenseSide, DenseSide]:
    """Choose the words of the query side and of the document side: the same object twice if tied."""
    df = corpus.frequency
    of_queries = of_documents = both = training_frequencies(corpus)
    if settings.vocabularies == "two" and not corpus.collection.documents_are_queries:
        of_queries = Frequencies(both.words - df, len(corpus.pairs.queries))
        of_documents = Frequencies(df, len(documents))
    query = _dense_side(corpus, of_queries, of_queries.words, known_trigrams, settings)
    # A tied table has a row for the words of both sides; two tables have their own words each.
    if settings.tied:
        return query, query
    return query, _dense_side(corpus, of_documents, df, known_trigrams, settings)


def _dense_side(
    corpus: Corpus,
    frequencies: Frequencies,
    df: Int64,
    known_trigrams: Vocabulary,
    settings: ModelSettings,
) -> DenseSide:
    """Make one side; ``df`` decides which words it keeps."""
    single = single_words(corpus.counts.words)
    rows = kept_words(np.where(single, df, 0), settings)
    if settings.latent == "none":
        rows = rows[:0]
    elif settings.latent_words and len(rows) > settings.latent_words:
        order = np.argsort(-df[rows], kind="stable")[: settings.latent_words]
        rows = np.sort(rows[order])
    if settings.latent == "learned":
        rows = np.union1d(rows, np.flatnonzero(~single))
    return DenseSide(
        corpus.vocabulary(rows),
        frequencies.idf()[np.append(rows, -1)],
        np.zeros((len(rows), 0), np.float32),
        known_trigrams,
        np.zeros((len(known_trigrams), 0), np.float32),
        settings.latent_terms,
        settings.phi == "counts",
    )


def sparse_side(
    corpus: Corpus, settings: ModelSettings, documents: Rows, fields: TextFields
) -> tuple[SparseSide, Rows]:
    """Choose the words and phrases of the lexical part; also return each document's phrase, (documents, phrases)."""
    df = corpus.frequency
    if fields.clicks is not None:
        df = document_frequency(Rows.add(fields.counts))
    is_word = single_words(corpus.counts.words).astype(np.float32)
    rows = kept_words(np.where(is_word, df, 0), settings)
    vocabulary = corpus.vocabulary(rows, settings.buckets)
    df = np.append(df[rows], np.ones(settings.buckets, np.int64))
    idf = bm25_idf if settings.match == "bm25" else tfidf_idf
    phrases, document_phrases = Phrases([]), Rows.empty(len(documents), 0)
    if fields.phrase_field:
        phrases, document_phrases = corpus.phrases(fields.phrase_field)
    side = SparseSide(
        vocabulary,
        idf(df, len(documents)),
        np.ones((len(fields.counts), len(vocabulary)), np.float32),
        phrases,
        np.ones(len(phrases), np.float32),
        settings.match,
        k1=settings.k1,
        b=settings.b,
        k3=settings.k3,
        terms=settings.match_terms,
        mean_lengths=tuple(
            float(np.mean(counts.sums(counts.values * is_word[counts.indices])))
            for counts in fields.counts
        ),
        folded=settings.folded,
        plurals=settings.plurals,
        compounds=known_compounds(corpus, vocabulary, settings) if settings.folded else [],
    )
    if side.forms is not None:
        # Every evaluation during training makes a new side with other weights, but with the same words.
        side = replace(side, form_tables=side.forms.tables)
    return side, document_phrases


def known_compounds(corpus: Corpus, vocabulary: Vocabulary, settings: ModelSettings) -> StringTable:
    """Return the compounds of the documents whose parts are all known, ascending."""
    compounds = corpus.compounds
    if settings.title_forms:
        titles = (
            t
            for name in corpus.sources
            if name.lower() in HEAVY
            for t in corpus.collection.field_texts(name)
        )
        forms = title_forms(titles, vocabulary.known.__contains__)
        compounds = sorted({*compounds, *forms})
    parts = list(map(parts_of, compounds))
    rows = vocabulary.known.rows([*chain.from_iterable(parts)])
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    least = np.minimum.reduceat(rows, starts) if len(rows) else rows
    known = zip(compounds, least.tolist(), strict=True)
    return StringTable.of([compound for compound, row in known if row >= 0])


def kept_words(df: Int64, settings: ModelSettings) -> Int64:
    """Return the places of the words that a vocabulary keeps, int64, ascending, given in how many texts each occurs."""
    rows = np.flatnonzero(df >= max(1, settings.min_df))
    if settings.words and len(rows) > settings.words:
        order = np.argsort(-df[rows], kind="stable")[: settings.words]
        rows = np.sort(rows[order])
    return rows.astype(np.int64)


def known_trigrams(corpus: Corpus, settings: ModelSettings) -> list[str]:
    """Return the letter trigrams that at least two words have; empty if the model uses none."""
    queries = corpus.queries.take(corpus.pairs.queries)
    are_short = len(queries) > 0 and float(np.mean(queries.sums())) <= _SHORT_QUERY_WORDS
    wanted = settings.trigrams in ("on", "only") or (settings.trigrams == "auto" and are_short)
    if settings.latent != "learned" or not wanted:
        return []
    seen = Counter(g for word in corpus.counts.words for g in trigrams(word))
    return sorted(g for g, count in seen.items() if count > 1)
