"""Fitting the word-pair models: f(q, d) = qᵀWd with W whole, sparse or in a hash table, under the margin loss.

    W ← W + λ q(d⁺ − d⁻)ᵀ        where 1 − f(q, d⁺) + f(q, d⁻) > 0            Bai et al. 2009, section 2.3.1

W is what it started from plus the sum of its mistakes. So a checkpoint, and the best epoch, hold the triples that were
mistaken and not W, which may be gigabytes; W is made again from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from typing import Any

import numba
import numpy as np

from fullrank.encoding import Encoded, Float32, Int64
from fullrank.errors import RecipeError, TrainingError
from fullrank.features import Rows, Vocabulary, tfidf_idf
from fullrank.linear import DenseSide
from fullrank.models.pairs import (
    PRIME,
    PairModel,
    PairRows,
    PairTable,
    encoded,
    text_side,
    window_starts,
)
from trainer.features.corpus import Corpus, Pairs, document_frequency
from trainer.features.data import kept_words
from trainer.recipes.recipe import Recipe
from trainer.recipes.settings import ModelSettings, PairSettings, TrainSettings
from trainer.systems.linear.margin import sample
from trainer.systems.pairs import kernels
from trainer.training.fitted import Fitted
from trainer.training.loop import Arrays, Run
from trainer.training.validation import Validation
from trainer.workshop import Workshop

MOST_WEIGHTS = 1 << 30
"""A whole W has at most so many weights: 4 GiB, 32,768 words."""

_STEP = 5_000  # triples between two reports of progress
_DEPTH = 100  # places that the MAP of early stopping looks at

log = getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PairTexts:
    """What a fit works on: the unit tf-idf vectors of queries and documents, over one vocabulary of D words.

    mates  as the corpus's
    """

    side: DenseSide
    sources: list[str]
    xq: Rows
    xd: Rows
    pairs: Pairs
    mates: Int64

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.xd)


def build_texts(corpus: Corpus, model: ModelSettings, terms: int) -> PairTexts:
    """The vectors of a collection, each of its text's ``terms`` strongest words (0: all).

    The vocabulary is that of the documents and the training queries, cut as ``model`` says. Raises TrainingError where
    no word is left or no pair is judged.
    """
    if model.sources:
        corpus = corpus.only(model.sources)
    itself = corpus.collection.documents_are_queries
    documents, queries = corpus.documents, corpus.queries
    df, total = document_frequency(documents), len(documents)
    if not itself:
        trained = queries.take(corpus.pairs.queries)
        df, total = df + document_frequency(trained), total + len(trained)
    rows = kept_words(df, df, model)
    if not len(rows):
        raise TrainingError("the texts have no word in common with the vocabulary; lower min_df")
    if not len(corpus.pairs):
        raise TrainingError("the training split has no judged pair; nothing can be learned")
    unseen = tfidf_idf(np.zeros(1, np.int64), total)
    words = Vocabulary([corpus.counts.words[i] for i in rows.tolist()])
    side = text_side(words, np.append(tfidf_idf(df[rows], total), unseen), terms)
    xd = side.features(corpus.counts.words, [documents], [1.0])[0]
    xq = xd if itself else side.features(corpus.counts.words, [queries], [1.0])[0]
    return PairTexts(side, list(corpus.sources), xq, xd, corpus.pairs, corpus.mates)


class PairLearner:
    """W under the hinge, as trainer.training.loop drives it.

    table   float32 (H,), W_ij at (starts[i] + j) mod H; a whole W is the table with H = D²
    alpha   float64 (1,): α where αI stands apart, else 0
    closed  weights have been removed, and what is zero stays so
    """

    def __init__(
        self, texts: PairTexts, pairs: PairSettings, train: TrainSettings, rng: np.random.Generator
    ) -> None:
        self.texts, self.pairs, self.train, self.rng = texts, pairs, train, rng
        self.per_epoch = train.triples or len(texts.pairs)
        self.width = len(texts.side.words)
        self.slots = self.width**2 if pairs.store == "dense" else pairs.slots
        if self.slots > MOST_WEIGHTS:
            raise TrainingError(
                f"a whole W over {self.width:,} words has {self.slots:,} weights, more than "
                f"{MOST_WEIGHTS:,} (4 GiB): set model.words to at most "
                f"{math.isqrt(MOST_WEIGHTS):,}, or pairs.store = hash"
            )
        self.prime = self.width if pairs.store == "dense" else PRIME
        self.starts = window_starts(self.width, self.prime, self.slots)
        self.rate = np.array(train.rates[:1])
        self._start()

    def _start(self) -> None:
        """W = I, or the table zero; no mistake made."""
        # New pages come zeroed from the system, and only when they are touched.
        self.table = np.zeros(self.slots, np.float32)
        self.alpha = np.array([1.0 if self.pairs.identity == "apart" else 0.0])
        if self.pairs.identity == "start" and not self.pairs.zero_diagonal:
            self.table[(self.starts + np.arange(self.width)) % self.slots] = 1
        self.closed = False
        self._mistakes: list[Int64] = []

    @property
    def _matrix(self) -> Float32:
        return self.table.reshape(self.width, self.width)

    def prepare(self) -> None:
        """Choose the rate: the one with the least mean hinge over the later half of a trial."""
        if len(self.train.rates) == 1:
            return
        triples = self._sample(self.train.trial)
        best = np.inf
        for rate in self.train.rates:
            losses = self.run(triples, rate)
            error = float(losses[len(losses) // 2 :].mean())
            log.info("rate %g: training error %.4f", rate, error)
            if np.isfinite(error) and error < best:
                best, self.rate[0] = error, rate
            self._start()

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """One pass over the triples at a fixed rate; then weights are removed where W is to be sparse."""
        triples = self._sample(self.per_epoch)
        mistaken = []
        for start in range(0, len(triples), _STEP):
            part = triples[start : start + _STEP]
            losses = self.run(part, self.rate[0])
            mistaken.append(part[losses > 0])
            yield len(part), float(losses.mean())
        self._mistakes.append(np.concatenate(mistaken))
        self._remove()

    def _sample(self, count: int) -> Int64:
        columns = sample(self.texts.pairs, self.texts, count, self.rng)
        return np.ascontiguousarray(np.stack(columns, axis=1))

    def run(
        self, triples: Int64, rate: float, *, update: bool = True, always: bool = False
    ) -> Float32:
        """Take the steps of triples int64 (T, 3), in place; returns each hinge before its step, float32 (T,).

        update  False only measures
        always  steps whether or not the margin is violated
        """
        losses = np.zeros(len(triples), np.float32)
        if len(triples):
            kernels.pair_sgd(
                triples,
                min(numba.get_num_threads(), len(triples)),
                _csr(self.texts.xq),
                _csr(self.texts.xd),
                self.starts,
                self.table,
                self.alpha,
                self.pairs.identity == "apart",
                self.pairs.zero_diagonal,
                self.closed,
                rate,
                update,
                always,
                losses,
            )
        return losses

    def _remove(self) -> None:
        """Take the smallest |W_ij| of each row away, a share of the longest row at a time, down to ``keep``."""
        keep = self.pairs.keep
        if not keep:
            return
        counts = np.zeros(self.width, np.int64)
        kernels.count_kept(self._matrix, 0, counts)
        longest = int(counts.max())
        if longest > keep or not self.closed:
            left = max(keep, int(longest * (1 - self.pairs.removal)))
            kernels.remove_smallest(self._matrix, left)
            self.closed = True

    def parameters(self) -> Arrays:
        """What W is made from: the mistaken triples, how many of them each epoch, and λ."""
        return {
            "mistakes": np.concatenate(
                [np.zeros((0, 3), np.int32), *self._mistakes], dtype=np.int32
            ),
            "epochs": np.array([len(made) for made in self._mistakes], np.int64),
            "rate": self.rate,
        }

    def state(self) -> Arrays:
        """Nothing beside."""
        return {}

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Make W again from its mistakes, epoch by epoch."""
        if all(np.array_equal(now, parameters[name]) for name, now in self.parameters().items()):
            return
        self.rate[0] = parameters["rate"][0]
        self._start()
        ends = np.cumsum(parameters["epochs"])
        for start, end in zip(ends - parameters["epochs"], ends, strict=True):
            made = parameters["mistakes"][start:end].astype(np.int64)
            self.run(made, self.rate[0], always=True)
            self._mistakes.append(made)
            self._remove()

    def measure(self, valid: Validation) -> float:
        """MAP on validation; of a W that is to be sparse, as sparse as it will be."""
        store = self._rows() if self.pairs.keep else self._table()
        model = PairModel({"match_terms": 0}, self.texts.side, store)
        queries = model.encode_query_rows(self.texts.xq.take(valid.rows))
        found = valid.measure(encoded(self.texts.xd), queries, depth=_DEPTH)
        return float(found["map"].mean)

    def store(self) -> PairRows | PairTable:
        """W as it is served."""
        return self._table() if self.pairs.store == "hash" else self._rows()

    def _table(self) -> PairTable:
        return PairTable(self.table, self.prime, float(self.alpha[0]), self.width)

    def _rows(self) -> PairRows:
        counts = np.zeros(self.width, np.int64)
        kernels.count_kept(self._matrix, self.pairs.keep, counts)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        kernels.fill_kept(self._matrix, self.pairs.keep, indptr, indices, values)
        return PairRows(Rows(indptr, indices, values, self.width))


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a recipe of word pairs. Raises RecipeError and TrainingError where that cannot be."""
    pairs, model = recipe.pairs, recipe.model
    if pairs.store == "hash" and (pairs.keep or pairs.zero_diagonal):
        raise RecipeError("pairs.keep and pairs.zero_diagonal need pairs.store = dense")
    if pairs.store == "dense" and pairs.identity == "apart":
        raise RecipeError("pairs.identity = apart needs pairs.store = hash: W has its own diagonal")
    if recipe.train.loss != "margin":
        raise RecipeError("word pairs are trained with train.loss = margin")
    key = ("pairs", model.words, model.min_df, model.sources, pairs.terms)
    texts = workshop.once(key, lambda: build_texts(workshop.corpus, model, pairs.terms))
    rng = np.random.default_rng(workshop.seed)
    learner = PairLearner(texts, pairs, recipe.train, rng)
    facts = run.learn(learner)
    settings = {
        "fields": [["all", texts.sources]],
        "query_fields": texts.sources,
        "match_terms": model.match_terms,
    }
    compiled = PairModel(settings, texts.side, learner.store())
    facts |= {"rate": float(learner.rate[0]), "alpha": float(learner.alpha[0])}
    return Fitted(compiled, encoded(texts.xd), partial(_encode, compiled, texts.xq), facts)


def _encode(model: PairModel, xq: Rows, rows: Int64) -> Encoded:
    return model.encode_query_rows(xq.take(rows))


def _csr(rows: Rows) -> tuple[Int64, np.ndarray, Float32]:
    return rows.indptr, rows.indices, rows.values
