"""Topic models over pairs of texts by expectation maximisation: PLSA, BLTM and BLTM-PR (Gao, Toutanova, Yih 2011).

A pair of a query and a document that was clicked for it has one topic vector θ ~ Dirichlet(α). Each of the Z topics
has a word distribution for each side, φ^q_z and φ^d_z ~ Dirichlet(β), or one for both (``merged``). EM maximises the
MAP objective Σ_pairs Σ_w n_w ln Σ_z φ_wz θ_z + (α − 1) Σ ln θ + (β − 1) Σ ln φ:

    E   p(z|w) ∝ φ_wz θ_z                              N(w, z) = n_w p(z|w)
    M   θ_z ∝ Σ_{q∈Q} N(q, z) + Σ_{d∈D} N(d, z) + α − 1
        φ^q_wz ∝ Σ_pairs N(w, z) + β − 1               over the words of that side

Where judgements have weights, that of a pair multiplies its terms of the objective: N(w, z) in the update
of φ. θ belongs to the pair alone and stays as it is.

PLSA has pairs without a query. With posterior regularisation (``projection_steps`` > 0) the E-step's posteriors of each
pair are projected to the nearest posteriors that give each topic the same share of both texts; see ``em``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank_trainer.recipes.settings import LanguageSettings
from fullrank_trainer.systems.language import em
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import RestoresInPlace
from fullrank_trainer.training.validation import Validation

TOPIC_PRIOR, WORD_PRIOR = 1.1, 1.01
"""α and β."""
_STEP = 4096  # pairs between two checks for Ctrl-C


@dataclass(frozen=True, eq=False)
class Side:
    """Word counts of one text of each pair, by pair and by word.

    Attributes:
        indptr, words, counts: the rows.
        starts, pairs, entries: for word w, at starts[w]..starts[w + 1]: the pairs that contain it, and its places in
            ``words``.
        shares: float64 (entries,), n_w / s_w of the last E-step.
    """

    indptr: Int64
    words: Int32
    counts: Float64
    starts: Int64
    pairs: Int64
    entries: Int64
    shares: Float64

    @classmethod
    def of(cls, rows: Rows) -> Side:
        """Make the rows and their transpose."""
        entries = np.argsort(rows.indices, kind="stable")
        starts = np.searchsorted(rows.indices[entries], np.arange(rows.width + 1))
        pairs = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))[entries]
        counts = rows.values.astype(np.float64)
        return cls(
            rows.indptr,
            rows.indices,
            counts,
            starts.astype(np.int64),
            pairs,
            entries,
            np.zeros_like(counts),
        )

    @property
    def present(self) -> np.ndarray:
        """bool (words,): the words that occur on this side."""
        return np.diff(self.starts) > 0

    def weighted(self, weights: Float64) -> Float64:
        """Return the shares times the weight of their pair, float64 (entries,)."""
        return self.shares * np.repeat(weights, np.diff(self.indptr))


class TopicLearner(RestoresInPlace):
    """Runs EM over pairs; an epoch is one iteration.

    Memory: 32 bytes a pair and topic, 40 bytes a distinct word of a text.

    Attributes:
        query, document: (pairs, words) counts over one vocabulary; pair i is row i of both.
        phi_q, phi_d: float64 (words, Z), one array if merged; zero for words that the side lacks.
        theta: float64 (pairs, Z).
        multipliers: float64 (pairs, Z), λ of each pair's projection; the next iteration starts from it.
        weights: float64 (pairs,).
        evaluations: float64 (epochs, 3), means over pairs of the dual's evaluations, of its gradients, and of the
            remaining gap in the constraint.
        objective: the MAP objective before the last iteration (minus the pairs' distance to their projection).

    Args:
        weights: float32 (pairs,); None: all are 1.
    """

    def __init__(
        self,
        query: Rows,
        document: Rows,
        settings: LanguageSettings,
        *,
        topics: int,
        epochs: int,
        rng: np.random.Generator,
        weights: Float32 | None = None,
    ) -> None:
        self.rng, self.per_epoch = rng, len(document)
        self.weights = np.ones(len(document)) if weights is None else weights.astype(np.float64)
        self.settings = settings
        self.query, self.document = Side.of(query), Side.of(document)
        self._of_query, self._of_document = self.query.present, self.document.present
        if settings.merged:
            self._of_query = self._of_document = self._of_query | self._of_document
        self.phi_d = self._start(self._of_document, topics)
        self.phi_q = self.phi_d if settings.merged else self._start(self._of_query, topics)
        pairs = len(document)
        self.theta = np.full((pairs, topics), 1 / topics)
        self.multipliers = np.zeros((pairs, topics))
        self._tilted_q, self._tilted_d = np.empty((pairs, topics)), np.empty((pairs, topics))
        self.evaluations = np.zeros((epochs, 3))
        self._iteration = np.zeros(1, np.int64)
        self.objective = np.zeros(1)

    def _start(self, present: np.ndarray, topics: int) -> Float64:
        """Draw φ_z ~ Dirichlet(1) over the words that occur; EM hardly leaves a start with equal topics."""
        drawn = self.rng.standard_exponential((len(present), topics)) * present[:, None]
        return _columns_to_one(drawn)

    def prepare(self) -> None:
        """Do nothing: there is no choice to make."""

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Run one iteration; yield (pairs, minus the objective per pair before the iteration)."""
        prior = self._prior()
        found = np.zeros((self.per_epoch, 4))
        for start in range(0, self.per_epoch, _STEP):
            stop = min(start + _STEP, self.per_epoch)
            self._pairs(start, stop, found)
            found[start:stop, 0] *= self.weights[start:stop]
            yield stop - start, -float(found[start:stop, 0].mean() + prior / self.per_epoch)
        self.objective[0] = found[:, 0].sum() + prior
        self.evaluations[self._iteration[0]] = found[:, 1:].mean(axis=0)
        self._iteration += 1
        self._words()

    def _prior(self) -> float:
        """Return (α − 1) Σ w ln θ + (β − 1) Σ ln φ."""
        of_topics = (self.weights[:, None] * np.log(self.theta)).sum()
        of_words = np.log(self.phi_d[self._of_document]).sum()
        if not self.settings.merged:
            of_words += np.log(self.phi_q[self._of_query]).sum()
        return float((TOPIC_PRIOR - 1) * of_topics + (WORD_PRIOR - 1) * of_words)

    def _pairs(self, start: int, stop: int, found: Float64) -> None:
        """Take the E-step of some pairs and the M-step of their θ."""
        q, d, settings = self.query, self.document, self.settings
        em.pairs_step(
            start, stop, q.indptr, q.words, q.counts, d.indptr, d.words, d.counts, self.phi_q, self.phi_d,
            self.theta, self.multipliers, TOPIC_PRIOR - 1, settings.projection_steps,
            settings.projection_tolerance, self._tilted_q, self._tilted_d, q.shares, d.shares, found,
        )  # fmt: skip

    def _words(self) -> None:
        """Take the M-step of φ in place."""
        q, d = self.query, self.document
        of_q, of_d = np.zeros_like(self.phi_q), np.zeros_like(self.phi_d)
        into = of_d if self.settings.merged else of_q
        for side, tilted, phi, out in (
            (q, self._tilted_q, self.phi_q, into),
            (d, self._tilted_d, self.phi_d, of_d),
        ):
            shares = side.weighted(self.weights)
            em.words_step(side.starts, side.pairs, side.entries, shares, tilted, phi, out)
        beta = WORD_PRIOR - 1
        self.phi_d[...] = _columns_to_one(of_d + beta * self._of_document[:, None])
        if not self.settings.merged:
            self.phi_q[...] = _columns_to_one(of_q + beta * self._of_query[:, None])

    def measure(self, valid: Validation) -> float:
        """Return the objective. It never falls, so the last iteration is the best."""
        return float(self.objective[0])

    def parameters(self) -> Arrays:
        """Return φ of both sides, once if merged."""
        found = {"document": self.phi_d}
        return found if self.settings.merged else {**found, "query": self.phi_q}

    def state(self) -> Arrays:
        """Return what the next iteration needs in addition to φ."""
        return {
            "theta": self.theta,
            "multipliers": self.multipliers,
            "evaluations": self.evaluations,
            "iteration": self._iteration,
            "objective": self.objective,
        }


def _columns_to_one(counts: Float64) -> Float64:
    """Divide each column by its sum; zero columns stay zero."""
    total = counts.sum(axis=0)
    total[total == 0] = 1
    return np.asarray(counts / total)
