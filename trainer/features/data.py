"""Training data: a collection counted once, and turned into the matrices that a recipe's model needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.bigrams import is_bigram
from fullrank.encoding import Float32, Int64
from fullrank.errors import TrainingError
from fullrank.features import (
    Counts,
    Rows,
    Vocabulary,
    bm25_idf,
    count_corpus,
    row_sums,
    rows_of,
    tfidf_idf,
)
from fullrank.linear import DenseSide, LinearModel, SparseSide
from fullrank.model import field_text
from fullrank.phrases import Phrases, no_phrases, phrase_of
from fullrank.text import trigrams
from trainer.collection import Collection, relevant
from trainer.features.clicks import FIELD as CLICKED
from trainer.features.clicks import Clicks
from trainer.features.composition import Composition
from trainer.features.hashing import composition, training_frequency, with_bigrams
from trainer.progress import Reporter
from trainer.settings import ModelSettings

# Letter trigrams pay for queries of a sentence; an article's words speak for themselves.
_SHORT_QUERY_WORDS = 40


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judged pairs of a split: query row → rows of its relevant documents, ascending."""

    queries: Int64
    relevant: dict[int, Int64]

    def __len__(self) -> int:
        return sum(map(len, self.relevant.values()))


@dataclass(frozen=True, eq=False)
class Corpus:
    """A collection counted once; every recipe's matrices are made from it.

    sources  the text fields of the documents, in order of appearance
    counts   columns: one per source field, then the queries where they are not the documents
    pairs    of the training split
    mates    int64 (B,): the row of the document that each query is or describes, never its answer;
             -1 where there is none
    made     what was counted on top, by what asked for it
    """

    collection: Collection
    sources: list[str]
    counts: Counts
    query_ids: list[str]
    pairs: Pairs
    mates: Int64
    processes: int
    made: dict[Any, Any] = field(default_factory=dict)

    @property
    def queries(self) -> Rows:
        """Word counts of the queries, (B, words)."""
        if self.collection.documents_are_queries:
            return joined(self.counts.columns[: len(self.sources)])
        return self.counts.columns[-1]

    @property
    def documents(self) -> Rows:
        """Word counts of the documents, all fields together."""
        return joined(self.counts.columns[: len(self.sources)])

    def only(self, sources: Sequence[str]) -> Corpus:
        """The corpus with some of its text fields. Raises TrainingError for one that it has not."""
        for name in sources:
            if name not in self.sources:
                there = ", ".join(self.sources)
                raise TrainingError(f"model.sources: no text field {name!r}; there are: {there}")
        kept = [self.counts.columns[self.sources.index(name)] for name in sources]
        kept += self.counts.columns[len(self.sources) :]
        return replace(self, sources=list(sources), counts=Counts(self.counts.words, kept))

    def query_texts(self, query_fields: Sequence[str]) -> list[str]:
        """The queries' texts."""
        if self.collection.queries is not None:
            return [query.text for query in self.collection.queries]
        return [field_text(d.fields, query_fields) for d in self.collection.documents]

    def training_texts(self) -> list[str]:
        """All text that training may look at: the documents, and the training queries where they are apart."""
        texts = [field_text(d.fields, self.sources) for d in self.collection.documents]
        if self.collection.queries is not None:
            texts += [self.collection.queries[row].text for row in self.pairs.queries.tolist()]
        return texts

    def columns(self) -> list[list[str]]:
        """The texts of each column of ``counts``."""
        return _columns(self.collection, self.sources)


def joined(columns: Sequence[Rows]) -> Rows:
    """Counts of several fields added up."""
    total = columns[0].csr()
    for rows in columns[1:]:
        total = total + rows.csr()
    return rows_of(sp.csr_array(total))


def count_collection(collection: Collection, *, processes: int, train: str = "train") -> Corpus:
    """Read, cut and count all texts of a collection."""
    sources = text_fields(collection)
    of_queries = collection.documents if collection.queries is None else collection.queries
    ids = [item.id for item in of_queries]
    counts = count_corpus(_columns(collection, sources), processes=processes)
    pairs, mates = pairs_of(collection, ids, train), mates_of(collection, ids)
    return Corpus(collection, sources, counts, ids, pairs, mates, processes)


def _columns(collection: Collection, sources: Sequence[str]) -> list[list[str]]:
    columns = [[field_text(d.fields, [name]) for d in collection.documents] for name in sources]
    if collection.queries is not None:
        columns.append([query.text for query in collection.queries])
    return columns


def text_fields(collection: Collection) -> list[str]:
    """Fields that are text with spaces or titles: title, text, and any other field of prose.

    A field whose values are few and short (a section, a language) is stored but not searched.
    """
    values: dict[str, list[str]] = {}
    for document in collection.documents:
        for name, value in document.fields.items():
            if isinstance(value, str):
                values.setdefault(name, []).append(value)
    found: list[str] = [name for name in ("title", "text") if name in values]
    for name, texts in values.items():
        if name not in found and len(set(texts)) > 0.2 * len(texts):
            found.append(name)
    if not found:
        raise TrainingError(f"{collection.path}: no document has a text field")
    return found


def mates_of(collection: Collection, query_ids: Sequence[str]) -> Int64:
    """The row of each query's mate, -1 where it has none."""
    if not collection.have_mates:
        return np.full(len(query_ids), -1, np.int64)
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    return np.array([rows[query] for query in query_ids], np.int64)


def pairs_of(collection: Collection, query_ids: Sequence[str], split: str) -> Pairs:
    """The judged pairs of a split as rows; empty where the split does not exist."""
    if split not in collection.splits:
        return Pairs(np.zeros(0, np.int64), {})
    place = {query: row for row, query in enumerate(query_ids)}
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    mates = collection.have_mates
    found: dict[int, Int64] = {}
    for query, grades in collection.qrels(split).items():
        documents = [rows[d] for d in relevant(grades) if not (mates and d == query)]
        if documents:
            found[place[query]] = np.array(sorted(documents), np.int64)
    return Pairs(np.array(sorted(found), np.int64), found)


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


def document_frequency(rows: Rows) -> Int64:
    """In how many rows each word stands, int64 (width,)."""
    return np.bincount(rows.indices, minlength=rows.width).astype(np.int64)


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
