"""Count 2-grams and find nearest frequent words, for correlated feature hashing.

Both read training texts only: the documents, and separate training queries. Both are cached with the corpus, so that a
search over settings counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64, Rows
from fullrank.progress import Reporter
from fullrank.text.bigrams import Bigrams
from fullrank.text.features import count_corpus
from fullrank_trainer.features.composition import Composition, hashed, mixed, no_rows, own_rows
from fullrank_trainer.features.corpus import Corpus, Totals, document_frequency
from fullrank_trainer.features.related import Neighbours, frequent_bigrams, neighbours
from fullrank_trainer.recipes.settings import ModelSettings


def training_contexts(corpus: Corpus) -> Rows:
    """Return the word counts of every training text, (texts, words)."""
    documents = corpus.documents
    if corpus.collection.documents_are_queries:
        return documents
    queries = corpus.queries.take(corpus.pairs.queries)
    both = sp.vstack([documents.csr(), queries.csr()], format="csr")
    return Rows.from_csr(sp.csr_array(both))


def training_frequency(corpus: Corpus) -> Int64:
    """Return in how many training texts each word occurs, int64 (words,)."""
    if corpus.collection.documents_are_queries:
        return corpus.frequency
    return corpus.frequency + document_frequency(corpus.queries.take(corpus.pairs.queries))


def with_bigrams(corpus: Corpus, min_texts: int, reporter: Reporter) -> Corpus:
    """Add counts of the 2-grams that occur in at least ``min_texts`` training texts; 0 adds none."""
    if min_texts == 0:
        return corpus
    if ("bigrams", min_texts) not in corpus.cache:
        words, texts = corpus.counts.words, corpus.training_texts()
        frequent = np.flatnonzero(training_frequency(corpus) >= min_texts)
        numbers = {words[i]: i for i in frequent.tolist()}
        with reporter.stage("2-grams", len(texts)) as stage:
            known = frequent_bigrams(texts, numbers, min_texts, progress=stage.advance)
        counts = count_corpus(
            corpus.columns(), processes=corpus.processes, counter=Bigrams(known).count
        )
        corpus.cache["bigrams", min_texts] = replace(
            corpus, counts=counts, cache={}, totals=Totals()
        )
    found: Corpus = corpus.cache["bigrams", min_texts]
    return found


def find_neighbours(corpus: Corpus, settings: ModelSettings, reporter: Reporter) -> Neighbours:
    """Find the nearest frequent words of every word and 2-gram that the corpus counts."""
    key = ("neighbours", settings.bin_words, settings.bins)
    if key not in corpus.cache:
        words, contexts = corpus.counts.words, training_contexts(corpus)
        with reporter.stage("nearest words", len(words)) as stage:
            corpus.cache[key] = neighbours(
                words, contexts, settings.bin_words, settings.bins, progress=stage.advance
            )
    found: Neighbours = corpus.cache[key]
    return found


def composition(
    corpus: Corpus, settings: ModelSettings, words: Sequence[str], reporter: Reporter
) -> Composition:
    """Return the trained rows that the words of one side are composed of."""
    if settings.trigrams == "only":
        return no_rows(words)
    if settings.hashing == "none":
        return own_rows(words)
    near = find_neighbours(corpus, settings, reporter)
    if settings.hashing == "rare":
        return mixed(words, near)
    return hashed(words, near)
