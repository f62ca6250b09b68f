"""Fit word-pair models: f(q, d) = qᵀWd with W dense, sparse or in a hash table, under the margin loss.

    W ← W + λ q(d⁺ − d⁻)ᵀ        if 1 − f(q, d⁺) + f(q, d⁻) > 0            Bai et al. 2009, section 2.3.1

W is its start plus the steps of the triples that violated the margin. W may take gigabytes, so a checkpoint and the
best epoch store these triples instead, and replay them to restore W.
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

from fullrank.encoding import Encoded, Float32, Int64, Rows
from fullrank.errors import TrainingError
from fullrank.models.linear import DenseSide
from fullrank.models.pairs import (
    PRIME,
    PairModel,
    PairRows,
    PairTable,
    text_side,
    window_starts,
)
from fullrank.text.features import Vocabulary, tfidf_idf
from fullrank_trainer.features.corpus import Corpus, document_frequency
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.features.sides import kept_words
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import ModelSettings, PairSettings, TrainSettings
from fullrank_trainer.systems.linear.margin import sample
from fullrank_trainer.systems.pairs import kernels
from fullrank_trainer.systems.rules import require, validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation

MAX_WEIGHTS = 1 << 30
"""Most weights of a dense W: 4 GiB, 32,768 words."""

_STEP = 5_000  # triples between two progress updates
_DEPTH = 100  # documents per query that the MAP of early stopping reads

log = getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PairTexts:
    """The input of a fit: unit tf-idf vectors of queries and documents over one vocabulary of D words.

    Attributes:
        side: the vocabulary and its idf.
        sources: text fields of the documents.
        xq, xd: the vectors of queries and documents.
        pairs: judged pairs of the training split.
        mates: int64 (queries,): the document that each query is or describes; -1 if none.
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
    """Make the vectors of a collection.

    Args:
        corpus: the collection, counted.
        model: limits the vocabulary, which is that of the documents and the training queries.
        terms: heaviest words of a text to keep; 0 for all.

    Raises:
        TrainingError: no word is left, or no pair is judged.
    """
    are_queries = corpus.collection.documents_are_queries
    documents, queries = corpus.documents, corpus.queries
    df, total = document_frequency(documents), len(documents)
    if not are_queries:
        trained = queries.take(corpus.pairs.queries)
        df, total = df + document_frequency(trained), total + len(trained)
    rows = kept_words(df, model)
    if not len(rows):
        raise TrainingError("no word is left in the vocabulary; lower model.min_df")
    corpus.pairs.require()
    unseen = tfidf_idf(np.zeros(1, np.int64), total)
    words = Vocabulary([corpus.counts.words[i] for i in rows.tolist()])
    side = text_side(words, np.append(tfidf_idf(df[rows], total), unseen), terms)
    xd = side.features(corpus.counts.words, [documents], [1.0])[0]
    xq = xd if are_queries else side.features(corpus.counts.words, [queries], [1.0])[0]
    return PairTexts(side, list(corpus.sources), xq, xd, corpus.pairs, corpus.mates)


class PairLearner:
    """Learns W under the margin loss; see fullrank_trainer.training.loop.Learner.

    Attributes:
        table: float32 (H,), W_ij at (starts[i] + j) mod H; a dense W is the table with H = D².
        alpha: float64 (1,), α if αI is separate from W, else 0.
        closed: weights were removed, so weights of zero stay zero.
    """

    def __init__(
        self, texts: PairTexts, pairs: PairSettings, train: TrainSettings, rng: np.random.Generator
    ) -> None:
        self.texts, self.pairs, self.train, self.rng = texts, pairs, train, rng
        self.per_epoch = train.triples or len(texts.pairs)
        self.width = len(texts.side.words)
        self.slots = self.width**2 if pairs.store == "dense" else pairs.slots
        if self.slots > MAX_WEIGHTS:
            raise TrainingError(
                f"a dense W over {self.width:,} words has {self.slots:,} weights, more than "
                f"{MAX_WEIGHTS:,} (4 GiB): set model.words to at most "
                f"{math.isqrt(MAX_WEIGHTS):,}, or pairs.store = hash"
            )
        self.prime = self.width if pairs.store == "dense" else PRIME
        self.starts = window_starts(self.width, self.prime, self.slots)
        self.rate = np.array(train.rates[:1])
        self._start()

    def _start(self) -> None:
        """Set W = I, or the table to zero, and forget all violating triples."""
        # The system zeroes new pages when they are first touched, so untouched ones cost no memory.
        self.table = np.zeros(self.slots, np.float32)
        self.alpha = np.array([1.0 if self.pairs.identity == "apart" else 0.0])
        if self.pairs.identity == "start" and not self.pairs.zero_diagonal:
            self.table[(self.starts + np.arange(self.width)) % self.slots] = 1
        self.closed = False
        self._violations: list[Int64] = []

    @property
    def _matrix(self) -> Float32:
        """A dense W, (D, D)."""
        return self.table.reshape(self.width, self.width)

    def prepare(self) -> None:
        """Choose the rate with the least mean hinge over the later half of a trial."""
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
        """Take one pass over the triples at a fixed rate, then remove weights if W is to be sparse."""
        triples = self._sample(self.per_epoch)
        violating = []
        for start in range(0, len(triples), _STEP):
            part = triples[start : start + _STEP]
            losses = self.run(part, self.rate[0])
            violating.append(part[losses > 0])
            yield len(part), float(losses.mean())
        self._violations.append(np.concatenate(violating))
        self._remove()

    def _sample(self, count: int) -> Int64:
        columns = sample(self.texts.pairs, self.texts, count, self.rng)
        return np.stack(columns, axis=1, dtype=np.int64)

    def run(
        self, triples: Int64, rate: float, *, update: bool = True, always: bool = False
    ) -> Float32:
        """Take the steps of triples in place.

        Args:
            triples: int64 (T, 3).
            rate: λ.
            update: False only measures.
            always: step whether or not the margin is violated.

        Returns:
            The hinge of each triple before its step, float32 (T,).
        """
        losses = np.zeros(len(triples), np.float32)
        if len(triples):
            kernels.pair_sgd(
                triples,
                min(numba.get_num_threads(), len(triples)),
                self.texts.xq.arrays,
                self.texts.xd.arrays,
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
        """Remove the smallest |W_ij| of each row, a share of the longest row at a time, down to ``keep``."""
        keep = self.pairs.keep
        if not keep:
            return
        counts = np.zeros(self.width, np.int64)
        kernels.count_kept(self._matrix, 0, counts)
        longest = int(counts.max())
        if longest > keep or not self.closed:
            limit = max(keep, int(longest * (1 - self.pairs.removal)))
            kernels.remove_smallest(self._matrix, limit)
            self.closed = True

    def parameters(self) -> Arrays:
        """Return what W is restored from: the violating triples, their number in each epoch, and λ."""
        return {
            "violations": np.concatenate(
                [np.zeros((0, 3), np.int32), *self._violations], dtype=np.int32
            ),
            "epochs": np.array([len(epoch) for epoch in self._violations], np.int64),
            "rate": self.rate,
        }

    def state(self) -> Arrays:
        """Return nothing: the parameters are enough."""
        return {}

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Restore W by replaying the violating triples, epoch by epoch."""
        if all(np.array_equal(now, parameters[name]) for name, now in self.parameters().items()):
            return
        self.rate[0] = parameters["rate"][0]
        self._start()
        ends = np.cumsum(parameters["epochs"])
        for start, end in zip(ends - parameters["epochs"], ends, strict=True):
            epoch = parameters["violations"][start:end].astype(np.int64)
            self.run(epoch, self.rate[0], always=True)
            self._violations.append(epoch)
            self._remove()

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; a W that is to be sparse is measured as sparse as it will be."""
        store = self._rows() if self.pairs.keep else self._table()
        model = PairModel({"match_terms": 0}, self.texts.side, store)
        queries = model.encode_query_rows(self.texts.xq.take(valid.rows))
        found = valid.measure(Encoded.from_rows(self.texts.xd), queries, depth=_DEPTH)
        return float(found["map"].mean)

    def store(self) -> PairRows | PairTable:
        """Return W as it is served."""
        return self._table() if self.pairs.store == "hash" else self._rows()

    def _table(self) -> PairTable:
        """Return W as a hash table."""
        return PairTable(self.table, self.prime, float(self.alpha[0]), self.width)

    def _rows(self) -> PairRows:
        """Return W as sparse rows."""
        counts = np.zeros(self.width, np.int64)
        kernels.count_kept(self._matrix, self.pairs.keep, counts)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        kernels.fill_kept(self._matrix, self.pairs.keep, indptr, indices, values)
        return PairRows(Rows(indptr, indices, values, self.width))


def validate(recipe: Recipe) -> None:
    """Check the settings of a recipe of word pairs. Raises RecipeError."""
    validate_without_hashing(recipe)
    pairs = recipe.pairs
    require(
        pairs.store == "dense" or not (pairs.keep or pairs.zero_diagonal),
        "pairs.keep and pairs.zero_diagonal need pairs.store = dense",
    )
    require(
        pairs.store == "hash" or pairs.identity != "apart",
        "pairs.identity = apart needs pairs.store = hash: W has its own diagonal",
    )
    require(recipe.train.loss == "margin", "word pairs are trained with train.loss = margin")


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a recipe of word pairs.

    Raises:
        TrainingError: there is nothing to learn from, or W would be too large.
    """
    pairs, model = recipe.pairs, recipe.model
    key = ("pairs", model.words, model.min_df, pairs.terms)
    texts = context.cached(key, lambda: build_texts(context.corpus, model, pairs.terms))
    rng = np.random.default_rng(context.seed)
    learner = PairLearner(texts, pairs, recipe.train, rng)
    facts = run.learn(learner)
    settings = {
        "fields": [["all", texts.sources]],
        "query_fields": texts.sources,
        "match_terms": model.match_terms,
    }
    compiled = PairModel(settings, texts.side, learner.store())
    facts |= {"rate": float(learner.rate[0]), "alpha": float(learner.alpha[0])}
    return FittedModel(
        compiled, Encoded.from_rows(texts.xd), partial(_encode, compiled, texts.xq), facts
    )


def _encode(model: PairModel, xq: Rows, rows: Int64) -> Encoded:
    return model.encode_query_rows(xq.take(rows))
