"""What correlated feature hashing counts over a collection: 2-grams, and the nearest frequent words of everything.

Both look at the training texts alone: the documents, and the training queries where they are apart. Both are kept with
the corpus, so that a search over settings counts once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64
from fullrank.features import Rows, count_corpus, rows_of
from fullrank.text.bigrams import Bigrams, is_bigram
from trainer.features.bigrams import frequent_bigrams
from trainer.features.composition import Composition, hashed, mixed, no_rows, own_rows
from trainer.features.corpus import Corpus
from trainer.features.dice import Neighbours, neighbours, sentences
from trainer.progress import Reporter
from trainer.recipes.settings import ModelSettings


def training_contexts(corpus: Corpus) -> Rows:
    """Word counts of every training text, (texts, words)."""
    documents = corpus.documents
    if corpus.collection.documents_are_queries:
        return documents
    queries = corpus.queries.take(corpus.pairs.queries)
    both = sp.vstack([documents.csr(), queries.csr()], format="csr")
    return rows_of(sp.csr_array(both))


def training_frequency(corpus: Corpus) -> Int64:
    """In how many training texts each word stands, int64 (words,)."""
    contexts = training_contexts(corpus)
    return np.bincount(contexts.indices, minlength=contexts.width).astype(np.int64)


def with_bigrams(corpus: Corpus, least: int, report: Reporter) -> Corpus:
    """The corpus with those 2-grams counted beside words that stand in at least so many training texts; 0: as it is."""
    if least == 0:
        return corpus
    if ("bigrams", least) not in corpus.made:
        words, texts = corpus.counts.words, corpus.training_texts()
        often = np.flatnonzero(training_frequency(corpus) >= least)
        numbers = {words[i]: i for i in often.tolist()}
        with report.stage("2-grams", len(texts)) as stage:
            known = frequent_bigrams(texts, numbers, least, progress=stage.advance)
        counts = count_corpus(
            corpus.columns(), processes=corpus.processes, counter=Bigrams(known).count
        )
        corpus.made["bigrams", least] = replace(corpus, counts=counts, made={})
    found: Corpus = corpus.made["bigrams", least]
    return found


def find_neighbours(corpus: Corpus, settings: ModelSettings, report: Reporter) -> Neighbours:
    """The nearest frequent words of every word and 2-gram that the corpus counts."""
    key = ("neighbours", settings.context, settings.bin_words, settings.bins)
    if key not in corpus.made:
        words, contexts = corpus.counts.words, training_contexts(corpus)
        if settings.context == "sentence":
            counter = Bigrams(filter(is_bigram, words)).count
            pieces = sentences(corpus.training_texts())
            counts = count_corpus([pieces], processes=corpus.processes, counter=counter)
            words, contexts = counts.words, counts.columns[0]
        with report.stage("nearest words", len(words)) as stage:
            corpus.made[key] = neighbours(
                words, contexts, settings.bin_words, settings.bins, progress=stage.advance
            )
    found: Neighbours = corpus.made[key]
    return found


def composition(
    corpus: Corpus, settings: ModelSettings, words: list[str], report: Reporter
) -> Composition:
    """What the words of one side are made of."""
    if settings.trigrams == "only":
        return no_rows(words)
    if settings.hashing == "none":
        return own_rows(words)
    near = find_neighbours(corpus, settings, report)
    if settings.hashing == "rare":
        return mixed(words, near)
    return hashed(words, near)
