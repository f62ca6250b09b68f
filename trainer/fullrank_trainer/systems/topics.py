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
pair are projected to the nearest posteriors that give each topic the same share of both texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import prange

from fullrank.storage.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.text.folding import LANGUAGES
from fullrank_trainer.compiled import compiled
from fullrank_trainer.recipes.settings import SIZE, setting
from fullrank_trainer.systems.linear.kernels import add_row
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import RestoresInPlace
from fullrank_trainer.training.validation import Validation


@dataclass(frozen=True)
class LanguageSettings:
    """Language models; ``model.dimension`` is the number of topics, ``train.epochs`` that of EM iterations."""

    # smooths a document in addition to the collection
    smoothing: str = setting("none", choices=("none", "topics", "translation"))
    # topics are learned from judged pairs, or from the documents alone
    learn_from: str = setting("pairs", choices=("pairs", "documents"))
    # queries and documents share one word distribution for each topic
    merged: bool = setting(False)
    # most steps of the projection of a pair's posteriors to equal topic shares; 0: no projection
    projection_steps: int = setting(0, high=10_000)
    # end the projection when the topic shares of both sides differ by at most this, summed over topics
    projection_tolerance: float = setting(0.001, high=2)
    # weights of the collection and of the document's own words: validation picks one; without it the first
    lambda1: tuple[float, ...] = setting((0.2,), low=1e-6, high=1)
    lambda2: tuple[float, ...] = setting((0.5,), high=1)
    # a word that a document has n times counts 1 + ln n times
    damped: bool = setting(False)
    # p: shares of a document's words are counts over |D|^p L^(1 - p), L the mean length; 1: over the length
    length: float = setting(1.0, high=1)
    # the language whose stems are the words (Snowball); "auto": English or "none", whichever is better on validation
    stem: str = setting("none", choices=("none", "auto", *LANGUAGES))
    # train the translations on the ranks of judged documents after EM, if judgements have no weights
    ranked: bool = setting(False)
    # words that each document stores as what people are likely to ask for it with, so that the score is an
    # inner product; 0: a scorer computes the likelihood of each query. Not for topics
    expanded: int = setting(0, high=SIZE)


TOPIC_PRIOR, WORD_PRIOR = 1.1, 1.01
"""α and β."""
_STEP = 4096  # pairs between two checks for Ctrl-C


@dataclass(frozen=True, eq=False)
class Side:
    """Word counts of one text of each pair, by pair and by word.

    Attributes:
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
        multipliers: float64 (pairs, Z), λ of each pair's projection; the next iteration starts from it.
        evaluations: float64 (epochs, 3), means over pairs of the dual's evaluations, of its gradients, and of the
            remaining gap in the constraint.
        objective: the MAP objective before the last iteration (minus the pairs' distance to their projection).
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
        q, d, settings = self.query, self.document, self.settings
        pairs_step(
            start, stop, q.indptr, q.words, q.counts, d.indptr, d.words, d.counts, self.phi_q, self.phi_d,
            self.theta, self.multipliers, TOPIC_PRIOR - 1, settings.projection_steps,
            settings.projection_tolerance, self._tilted_q, self._tilted_d, q.shares, d.shares, found,
        )  # fmt: skip

    def _words(self) -> None:
        q, d = self.query, self.document
        of_q, of_d = np.zeros_like(self.phi_q), np.zeros_like(self.phi_d)
        into = of_d if self.settings.merged else of_q
        for side, tilted, phi, out in (
            (q, self._tilted_q, self.phi_q, into),
            (d, self._tilted_d, self.phi_d, of_d),
        ):
            shares = side.weighted(self.weights)
            words_step(side.starts, side.pairs, side.entries, shares, tilted, phi, out)
        beta = WORD_PRIOR - 1
        self.phi_d[...] = _columns_to_one(of_d + beta * self._of_document[:, None])
        if not self.settings.merged:
            self.phi_q[...] = _columns_to_one(of_q + beta * self._of_query[:, None])

    def measure(self, valid: Validation) -> float:
        """Return the objective. It never falls, so the last iteration is the best."""
        return float(self.objective[0])

    def parameters(self) -> Arrays:
        found = {"document": self.phi_d}
        return found if self.settings.merged else {**found, "query": self.phi_q}

    def state(self) -> Arrays:
        return {
            "theta": self.theta,
            "multipliers": self.multipliers,
            "evaluations": self.evaluations,
            "iteration": self._iteration,
            "objective": self.objective,
        }


def _columns_to_one(counts: Float64) -> Float64:
    total = counts.sum(axis=0)
    total[total == 0] = 1
    return np.asarray(counts / total)


# Numba kernels of expectation maximisation for topic models over pairs of texts.
#
# One thread computes a pair or a word in a fixed order, so results do not depend on the number of threads. Arrays are
# float64, because late EM steps gain less than the resolution of float32.
#
# A side is a pair's query or its document: words w with counts n_w, topic-word probabilities φ_wz (words by rows), and
# a topic vector θ̃ that may be tilted. Its log-likelihood and its expected topic counts are
#
#     s_w = Σ_z φ_wz θ̃_z        L = Σ_w n_w ln s_w        N_z = Σ_w n_w p(z|w),   p(z|w) = φ_wz θ̃_z / s_w


_SMALLEST = 1e-300  # less than any probability under a prior above 1
_MAX_HALVINGS = 30


@compiled(fastmath=True)
def _dot(a: Float64, b: Float64) -> float:
    total = 0.0
    for z in range(a.shape[0]):
        total += a[z] * b[z]
    return total


@compiled()
def _tilt(theta: Float64, multipliers: Float64, scale: float, out: Float64) -> None:
    """Compute θ̃_z = θ_z exp(scale · λ_z)."""
    for z in range(len(theta)):
        out[z] = theta[z] * np.exp(scale * multipliers[z])


@compiled()
def _likelihood(  # type: ignore[no-untyped-def]
    words, counts, phi, tilted, shares
):
    """Return L of one side; shares[w] = n_w / s_w."""
    total = 0.0
    for e in range(len(words)):
        s = max(_dot(phi[words[e]], tilted), _SMALLEST)
        shares[e] = counts[e] / s
        total += counts[e] * np.log(s)
    return total


@compiled()
def _expected(  # type: ignore[no-untyped-def]
    words, shares, phi, tilted, out
):
    """Compute out_z = N_z of one side."""
    out[:] = 0.0
    for e in range(len(words)):
        add_row(out, phi[words[e]], shares[e])
    for z in range(len(out)):
        out[z] *= tilted[z]


@compiled()
def _gap(  # type: ignore[no-untyped-def]
    expected_q, expected_d, q_size, d_size, gradient
):
    """Compute gradient_z = N_z^q / |Q| − N_z^d / |D|; return the sum of its absolute values."""
    total = 0.0
    for z in range(len(gradient)):
        gradient[z] = expected_q[z] / q_size - expected_d[z] / d_size
        total += abs(gradient[z])
    return total


@compiled()
def _pair(  # type: ignore[no-untyped-def]
    q_words, q_counts, d_words, d_counts, phi_q, phi_d, theta, multipliers, steps, tolerance,
    tilted_q, tilted_d, q_shares, d_shares, expected_q, expected_d,
):  # fmt: skip
    """Take the E-step of one pair; with ``steps`` > 0, project its posteriors to equal topic shares.

    p'(z|q) ∝ φ_qz θ_z exp(−λ_z / |Q|)      p'(z|d) ∝ φ_dz θ_z exp(+λ_z / |D|)

    λ maximises the dual: a constant minus V(λ), the log-likelihood of both sides under the tilted θ.

    −∂V/∂λ_z = N_z^q / |Q| − N_z^d / |D| = g_z          the constraint, zero at the optimum
    ∂²V/∂λ²  ≤ diag(h),  h_z = N_z^q / |Q|² + N_z^d / |D|²  as diag(p') − p' p'ᵀ ≤ diag(p')

    so λ_z += η g_z / h_z is a gradient step scaled by its curvature; η starts at 1 and is halved until V falls.

    Returns:
        V, the number of its evaluations, the number of gradients, and Σ_z |g_z|.
    """
    q_size, d_size = q_counts.sum(), d_counts.sum()
    projected = steps > 0 and q_size > 0 and d_size > 0
    if projected:
        _tilt(theta, multipliers, -1.0 / q_size, tilted_q)
        _tilt(theta, multipliers, 1.0 / d_size, tilted_d)
    else:
        tilted_q[:] = theta
        tilted_d[:] = theta
    V = _likelihood(q_words, q_counts, phi_q, tilted_q, q_shares)
    V += _likelihood(d_words, d_counts, phi_d, tilted_d, d_shares)
    _expected(q_words, q_shares, phi_q, tilted_q, expected_q)
    _expected(d_words, d_shares, phi_d, tilted_d, expected_d)
    if not projected:
        return V, 1, 1, 0.0
    size = len(theta)
    gradient, direction, moved = np.empty(size), np.empty(size), np.empty(size)
    evaluations = gradients = 1
    gap = _gap(expected_q, expected_d, q_size, d_size, gradient)
    for _ in range(steps):
        if gap <= tolerance:
            break
        slope = 0.0
        for z in range(size):
            h = expected_q[z] / q_size**2 + expected_d[z] / d_size**2
            direction[z] = gradient[z] / max(h, _SMALLEST)
            slope += gradient[z] * direction[z]
        rate = 1.0
        for _ in range(_MAX_HALVINGS):
            for z in range(size):
                moved[z] = multipliers[z] + rate * direction[z]
            _tilt(theta, moved, -1.0 / q_size, tilted_q)
            _tilt(theta, moved, 1.0 / d_size, tilted_d)
            reached = _likelihood(q_words, q_counts, phi_q, tilted_q, q_shares)
            reached += _likelihood(d_words, d_counts, phi_d, tilted_d, d_shares)
            evaluations += 1
            # The last term allows for rounding, which hides the true decrease near the optimum.
            if reached <= V - 1e-4 * rate * slope + 1e-13 * abs(V):
                break
            rate *= 0.5
        multipliers[:] = moved
        V = reached
        _expected(q_words, q_shares, phi_q, tilted_q, expected_q)
        _expected(d_words, d_shares, phi_d, tilted_d, expected_d)
        gradients += 1
        gap = _gap(expected_q, expected_d, q_size, d_size, gradient)
    return V, evaluations, gradients, gap


@compiled(parallel=True)
def pairs_step(  # type: ignore[no-untyped-def]
    first, last, q_indptr, q_words, q_counts, d_indptr, d_words, d_counts, phi_q, phi_d, theta, multipliers,
    prior, steps, tolerance, tilted_q, tilted_d, q_shares, d_shares, found,
):  # fmt: skip
    """Take the E-step of pairs first..last and the M-step of their θ: θ_z ∝ N_z^q + N_z^d + α − 1 (``prior``).

    Outputs for ``words_step``: the old θ as tilted_q, tilted_d (pairs, Z), and n_w / s_w as q_shares, d_shares, one an
    entry. found (pairs, 4): V, its evaluations, gradients, and the remaining gap in the constraint.
    """
    for p in prange(first, last):
        size = theta.shape[1]
        expected_q, expected_d = np.empty(size), np.empty(size)
        a, b, c, d = q_indptr[p], q_indptr[p + 1], d_indptr[p], d_indptr[p + 1]
        V, evaluations, gradients, gap = _pair(
            q_words[a:b], q_counts[a:b], d_words[c:d], d_counts[c:d], phi_q, phi_d, theta[p], multipliers[p],
            steps, tolerance, tilted_q[p], tilted_d[p], q_shares[a:b], d_shares[c:d], expected_q, expected_d,
        )  # fmt: skip
        found[p, 0], found[p, 1], found[p, 2], found[p, 3] = V, evaluations, gradients, gap
        total = 0.0
        for z in range(size):
            theta[p, z] = expected_q[z] + expected_d[z] + prior
            total += theta[p, z]
        for z in range(size):
            # Without words and prior the total is zero: keep θ uniform.
            theta[p, z] = theta[p, z] / total if total > 0 else 1.0 / size


@compiled(parallel=True)
def words_step(  # type: ignore[no-untyped-def]
    starts, pairs, entries, shares, tilted, phi, out
):
    """Take the M-step of one side without its prior: out_wz += Σ_pairs n_w p'(z|w) = φ_wz Σ_pairs (n_w / s_w) θ̃_z.

    (starts, pairs, entries): for word w, the pairs that contain it and its place in ``shares`` for each.
    """
    for w in prange(len(starts) - 1):
        total = np.zeros(phi.shape[1])
        for e in range(starts[w], starts[w + 1]):
            add_row(total, tilted[pairs[e]], shares[entries[e]])
        for z in range(phi.shape[1]):
            out[w, z] += total[z] * phi[w, z]
