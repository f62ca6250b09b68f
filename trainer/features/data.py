"""The matrices that a recipe's model needs, made from a collection that was counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32, Int64
from fullrank.errors import TrainingError
from fullrank.features import Rows, Vocabulary, bm25_idf, row_sums, tfidf_idf
from fullrank.linear import DenseSide, LinearModel, SparseSide
from fullrank.model import field_text
from fullrank.text.bigrams import is_bigram
from fullrank.text.phrases import Phrases, no_phrases, phrase_of
from fullrank.text.words import trigrams
from trainer.features.clicks import FIELD as CLICKED
from trainer.features.clicks import Clicks
from trainer.features.composition import Composition
from trainer.features.corpus import Corpus, Pairs, document_frequency, joined
from trainer.features.hashing import composition, training_frequency, with_bigrams
from trainer.progress import Reporter
from trainer.recipes.settings import ModelSettings

# Letter trigrams pay for queries of a sentence; an article's words speak for themselves.
_SHORT_QUERY_WORDS = 40


@dataclass(frozen=True, eq=False)
class Features:
    """What a fit works on. Sparse feature space F: words (and buckets), then phrases.

    xq, xd    φ of queries and documents over trained rows
    s         query weights over F
    z         per field, document weights over F before the diagonal; the phrases last
    sides     the model with empty tables, which made them
    mates     as the corpus's
    clicks    where the clicked text is a field, the last of ``counted``
    rows_q, rows_d   the trained rows that the words of each side are made of
    """

    settings: ModelSettings
    model: LinearModel
    rows_q: Composition
    rows_d: Composition
    xq: Rows
    xd: Rows
    s: Rows
    z: list[Rows]
    own: Rows
    words: list[str]
    counted: list[Rows]
    query_counts: Rows
    query_phrases: Rows
    phrase_idf: Float32
    pairs: Pairs
    mates: Int64
    clicks: Clicks | None = None

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.own)

    def fields(self, documents: Int64, queries: Int64) -> list[Rows]:
        """z of some documents as these training queries may see them: without their own texts as clicked text."""
        found = [rows.take(documents) for rows in self.z]
        if self.clicks is not None:
            f, side = len(self.counted) - 1, self.model.sparse
            left = self.clicks.without(queries, documents)
            found[f] = _wide(side.field(self.words, left, f), side.width, 0)
        return found


def fields_of(corpus: Corpus, settings: ModelSettings) -> list[tuple[str, list[str]]]:
    """How documents are cut: every source field apart, or all joined."""
    if settings.fields == "joined":
        return [("all", list(corpus.sources))]
    return [(name, [name]) for name in corpus.sources]


def build_features(
    corpus: Corpus, settings: ModelSettings, report: Reporter | None = None
) -> Features:
    """The matrices of a recipe; ``report`` shows what takes long."""
    report = report or Reporter(quiet=True)
    if settings.sources:
        corpus = corpus.only(settings.sources)
    fields = fields_of(corpus, settings)
    place = {name: i for i, name in enumerate(corpus.sources)}
    itself = corpus.collection.documents_are_queries
    phrase_field = fields[0][1][0] if settings.phrases and "title" in place else ""
    trained = corpus.queries.take(corpus.pairs.queries)
    known = Vocabulary(_trigrams(settings, trained, corpus.counts.words))

    # 2-grams are words of the latent part alone: from here on they are counted like the others.
    corpus = with_bigrams(corpus, settings.bigrams, report)
    all_words, documents, queries = corpus.counts.words, corpus.documents, corpus.queries
    counted = [joined([corpus.counts.columns[place[s]] for s in names]) for _, names in fields]
    field_weights = [1.0] * len(fields)
    clicks = None
    if settings.clicked == "on" or (settings.clicked == "auto" and not itself):
        if CLICKED in place:
            raise TrainingError(
                f"model.clicked: the documents have a field {CLICKED!r} of their own; rename it"
            )
        # Linked documents speak by their titles: whole articles would drown the field.
        asked = corpus.counts.columns[place["title"]] if itself and "title" in place else queries
        clicks = Clicks.of(corpus.pairs.relevant, len(documents), asked)
        fields, field_weights = [*fields, (CLICKED, [CLICKED])], [*field_weights, 0.0]
        counted.append(clicks.counts)
    df = document_frequency(documents)
    df_both = training_frequency(corpus)
    total = len(documents) + (0 if itself else len(corpus.pairs.queries))
    df_q, texts_q, df_d, texts_d = df_both, total, df_both, total
    if settings.vocabularies == "two" and not itself:
        df_q, texts_q = df_both - df, len(corpus.pairs.queries)
        df_d, texts_d = df, len(documents)
    alone = np.array([not is_bigram(word) for word in all_words], np.bool_)

    alone_d, alone_q = np.where(alone, df, 0), np.where(alone, df_q, 0)
    document_rows = kept_words(alone_d, alone_d, settings)
    query_rows = kept_words(alone_q, alone_q, settings)
    bigrams = np.flatnonzero(~alone)
    query = _side(all_words, query_rows, bigrams, _idf(df_q, texts_q), known, df_q, settings)
    # One table for both sides has a row for the words of both; two tables have each their own.
    document = query
    if not settings.tied:
        idf = _idf(df_d, texts_d)
        document = _side(all_words, document_rows, bigrams, idf, known, df, settings)
    sparse_rows, sparse_df = document_rows, df
    if clicks is not None:
        sparse_df = document_frequency(joined(counted))
        alone_d = np.where(alone, sparse_df, 0)
        sparse_rows = kept_words(alone_d, alone_d, settings)
    sparse, own = _sparse(corpus, settings, counted, sparse_rows, sparse_df, phrase_field)
    model = LinearModel(
        {
            "fields": [[name, sources] for name, sources in fields],
            "field_weights": field_weights,
            "query_fields": list(corpus.sources),
            "phrase_field": phrase_field,
            "ngrams": 2 if settings.bigrams else 1,
            "unit": settings.latent in ("lsi", "projection"),
            "dense_scale": 1.0,
            "bias": 0.0,
        },
        query,
        document,
        sparse,
    )
    texts = corpus.query_texts(corpus.sources)
    phrases = sparse.phrases.rows(texts, processes=corpus.processes)
    phrase_idf = bm25_idf(document_frequency(phrases), len(phrases))
    weights = model.settings["field_weights"]
    rows_q = composition(corpus, settings, list(query.words.words), report)
    rows_d = composition(corpus, settings, list(document.words.words), report)
    if settings.latent == "none":
        xq = xd = no_phrases(0)
    else:
        xq = rows_q.trained(query, *query.features(all_words, [queries], [1.0]))
        xd = rows_d.trained(document, *document.features(all_words, counted, weights))
    z = [_wide(sparse.field(all_words, rows, f), sparse.width, 0) for f, rows in enumerate(counted)]
    if len(sparse.phrases):
        valued = own.with_values(own.values * phrase_idf[own.indices])
        z.append(_wide(valued, sparse.width, len(sparse.words)))
    s = sparse.query(all_words, queries, phrases)
    return Features(
        settings, model, rows_q, rows_d, xq, xd, s, z, own, all_words, counted, queries, phrases,
        phrase_idf, corpus.pairs, corpus.mates, clicks,
    )  # fmt: skip


def kept_words(df: Int64, rank_by: Int64, settings: ModelSettings) -> Int64:
    """The words that a vocabulary keeps, ascending: in ``min_df`` texts, the ``words`` with the highest rank."""
    rows = np.flatnonzero(df >= max(1, settings.min_df))
    if settings.words and len(rows) > settings.words:
        order = np.argsort(-rank_by[rows], kind="stable")[: settings.words]
        rows = np.sort(rows[order])
    return rows.astype(np.int64)


def _idf(df: Int64, texts: int) -> Float32:
    """idf of each word, and last of one that no text holds."""
    return tfidf_idf(np.append(df, 0), texts)


def _trigrams(settings: ModelSettings, queries: Rows, words: Sequence[str]) -> list[str]:
    short = len(queries) > 0 and float(np.mean(row_sums(queries))) <= _SHORT_QUERY_WORDS
    wanted = settings.trigrams in ("on", "only") or (settings.trigrams == "auto" and short)
    if settings.latent != "learned" or not wanted:
        return []
    seen = Counter(g for word in words for g in trigrams(word))
    return sorted(g for g, times in seen.items() if times > 1)


def _side(
    words: Sequence[str],
    rows: Int64,
    bigrams: Int64,
    idf: Float32,
    known_trigrams: Vocabulary,
    df: Int64,
    settings: ModelSettings,
) -> DenseSide:
    if settings.latent == "none":
        rows = rows[:0]
    elif settings.latent_words and len(rows) > settings.latent_words:
        order = np.argsort(-df[rows], kind="stable")[: settings.latent_words]
        rows = np.sort(rows[order])
    if settings.latent == "learned":
        rows = np.union1d(rows, bigrams)
    return DenseSide(
        Vocabulary([words[i] for i in rows.tolist()]),
        idf[np.append(rows, -1)],
        np.zeros((len(rows), 0), np.float32),
        known_trigrams,
        np.zeros((len(known_trigrams), 0), np.float32),
        settings.latent_terms,
        settings.phi == "counts",
    )


def _sparse(
    corpus: Corpus,
    settings: ModelSettings,
    counted: Sequence[Rows],
    rows: Int64,
    df: Int64,
    phrase_field: str,
) -> tuple[SparseSide, Rows]:
    documents = len(counted[0])
    words = corpus.counts.words
    vocabulary = Vocabulary([words[i] for i in rows.tolist()], settings.buckets)
    df = np.append(df[rows], np.ones(settings.buckets, np.int64))
    idf = bm25_idf(df, documents) if settings.match == "bm25" else tfidf_idf(df, documents)
    titles = [field_text(d.fields, [phrase_field]) for d in corpus.collection.documents]
    known = sorted({phrase_of(title) for title in titles} - {""}) if phrase_field else []
    phrases = Phrases(known)
    side = SparseSide(
        vocabulary,
        idf,
        np.ones((len(counted), len(vocabulary)), np.float32),
        phrases,
        np.ones(len(known), np.float32),
        settings.match,
        k1=settings.k1,
        b=settings.b,
        k3=settings.k3,
        terms=settings.match_terms,
        mean_lengths=tuple(_mean_length(rows, words) for rows in counted),
    )
    return side, phrases.own(titles)


def _mean_length(counts: Rows, words: Sequence[str]) -> float:
    alone = np.array([not is_bigram(word) for word in words], np.float32)
    return float(np.mean(row_sums(counts, counts.values * alone[counts.indices])))


def _wide(rows: Rows, width: int, shift: int) -> Rows:
    return Rows(rows.indptr, rows.indices + np.int32(shift), rows.values, width)
