"""EM over pairs against a plain numpy reading of it: posteriors word by word, the dual by small gradient steps."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import numpy.typing as npt
import pytest

from fullrank.encoding import Rows
from fullrank_trainer.systems import topics as em
from fullrank_trainer.systems.topics import LanguageSettings, TopicLearner

Float64 = npt.NDArray[np.float64]
WORDS, TOPICS = 12, 4

# Pairs of (query, document) as word → count, with empty texts, single words and words of one side only.
PAIRS: list[tuple[dict[int, float], dict[int, float]]] = [
    ({0: 1, 1: 2}, {2: 3, 3: 1, 4: 1}),
    ({1: 1}, {3: 2}),
    ({}, {2: 1, 5: 4}),
    ({0: 2}, {}),
    ({}, {}),
    ({6: 1, 7: 1, 0: 1}, {6: 2, 8: 1, 9: 1, 2: 1}),
    ({6: 3}, {8: 9}),
    ({0: 1, 6: 1, 1: 5}, {4: 1, 5: 1, 8: 1, 9: 1, 3: 1, 2: 1, 10: 1}),
]
PR = LanguageSettings(projection_steps=500, projection_tolerance=1e-9)
PLAIN = LanguageSettings()


def rows(side: int) -> Rows:
    return Rows.from_lists([(list(pair[side]), list(pair[side].values())) for pair in PAIRS], WORDS)


def learner(settings: LanguageSettings, epochs: int = 30, seed: int = 3) -> TopicLearner:
    rng = np.random.default_rng(seed)
    return TopicLearner(rows(0), rows(1), settings, topics=TOPICS, epochs=epochs, rng=rng)


def run(found: TopicLearner, epochs: int) -> list[float]:
    """The objective before each iteration."""
    values = []
    for _ in range(epochs):
        list(found.steps(0, 0))
        values.append(float(found.objective[0]))
    return values


def posteriors(text: dict[int, float], phi: Float64, theta: Float64) -> Float64:
    """p(z|w), a row per word."""
    raw = np.array([phi[w] * theta for w in text]).reshape(-1, len(theta))
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def counts(text: dict[int, float]) -> Float64:
    return np.array(list(text.values()), np.float64).reshape(-1, 1)


def shares(text: dict[int, float], p: Float64) -> Float64:
    """(1/|Q|) Σ_q n(q) p(z|q)."""
    n = counts(text)
    return np.asarray((n * p).sum(axis=0) / n.sum())


def project(
    query: dict[int, float], document: dict[int, float], p: Float64, r: Float64
) -> tuple[Float64, Float64]:
    """The nearest posteriors with equal topic shares, by plain gradient ascent on λ."""
    q_size, d_size = sum(query.values()), sum(document.values())
    multipliers = np.zeros(p.shape[1])
    for _ in range(200_000):
        a, b = p * np.exp(-multipliers / q_size), r * np.exp(multipliers / d_size)
        a, b = a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
        gap = shares(query, a) - shares(document, b)
        if np.abs(gap).sum() < 1e-8:
            break
        multipliers += gap / (1 / q_size + 1 / d_size)
    return a, b


def twin(phi_q: Float64, phi_d: Float64, settings: LanguageSettings, epochs: int) -> list[Float64]:
    """φ^q, φ^d and θ after some iterations."""
    theta = np.full((len(PAIRS), phi_q.shape[1]), 1 / phi_q.shape[1])
    for _ in range(epochs):
        of_q = np.where(phi_q > 0, 0.01, 0.0)
        of_d = of_q if settings.merged else np.where(phi_d > 0, 0.01, 0.0)
        for i, (query, document) in enumerate(PAIRS):
            p, r = posteriors(query, phi_q, theta[i]), posteriors(document, phi_d, theta[i])
            if settings.projection_steps and query and document:
                p, r = project(query, document, p, r)
            theta[i] = 0.1
            for text, posterior, into in ((query, p, of_q), (document, r, of_d)):
                for w, line in zip(text, counts(text) * posterior, strict=True):
                    theta[i] += line
                    into[w] += line
            theta[i] /= theta[i].sum()
        phi_q, phi_d = of_q / of_q.sum(axis=0), of_d / of_d.sum(axis=0)
    return [phi_q, phi_d, theta]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_em_equals_its_numpy_twin(settings: LanguageSettings, merged: bool) -> None:
    settings = replace(settings, merged=merged)
    found = learner(settings)
    wanted = twin(found.phi_q.copy(), found.phi_d.copy(), settings, 3)
    run(found, 3)
    for got, want in zip((found.phi_q, found.phi_d, found.theta), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_the_map_objective_never_falls(settings: LanguageSettings, merged: bool) -> None:
    """The constrained objective subtracts the distance of the posteriors to their projection."""
    values = run(learner(replace(settings, merged=merged)), 30)
    assert np.all(np.diff(values) > -1e-7)
    assert values[-1] > values[0] + 1


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_weight_two_is_the_pair_twice(settings: LanguageSettings, merged: bool) -> None:
    settings = replace(settings, merged=merged)
    times = np.array([1 + i % 3 for i in range(len(PAIRS))])
    repeated = np.repeat(np.arange(len(PAIRS)), times)

    def fitted(order: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]) -> TopicLearner:
        sides = (rows(0).take(order), rows(1).take(order))
        rng = np.random.default_rng(3)
        return TopicLearner(*sides, settings, topics=TOPICS, epochs=8, rng=rng, weights=weights)

    ones = np.ones(len(repeated), np.float32)
    twice = fitted(repeated, ones)
    weighted = fitted(np.arange(len(PAIRS)), times.astype(np.float32))
    np.testing.assert_allclose(run(weighted, 8), run(twice, 8), rtol=1e-9)
    for name in ("phi_q", "phi_d"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(twice, name), atol=1e-9)
    np.testing.assert_allclose(weighted.theta[repeated], twice.theta, atol=1e-9)
    plain = learner(settings)
    run(plain, 8)
    assert np.abs(plain.phi_d - weighted.phi_d).max() > 0.01


@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_the_weighted_objective_never_falls(settings: LanguageSettings) -> None:
    weights = np.array([0.1, 7, 1, 3, 0.5, 2, 0.01, 4], np.float32)
    rng = np.random.default_rng(3)
    found = TopicLearner(
        rows(0), rows(1), settings, topics=TOPICS, epochs=30, rng=rng, weights=weights
    )
    values = run(found, 30)
    assert np.all(np.diff(values) > -1e-7)
    assert values[-1] > values[0] + 1


def test_weights_of_one_keep_the_bits() -> None:
    ones = np.ones(len(PAIRS), np.float32)
    rng = np.random.default_rng(3)
    weighted = TopicLearner(rows(0), rows(1), PR, topics=TOPICS, epochs=30, rng=rng, weights=ones)
    plain = learner(PR)
    assert run(weighted, 4) == run(plain, 4)
    for name in ("phi_q", "phi_d", "theta"):
        np.testing.assert_array_equal(getattr(weighted, name), getattr(plain, name))


def test_the_objective_equals_the_log_posterior() -> None:
    found = learner(PLAIN)
    run(found, 3)
    phi_q, phi_d, theta = found.phi_q.copy(), found.phi_d.copy(), found.theta.copy()
    wanted = 0.1 * np.log(theta).sum() + sum(
        0.01 * np.log(phi[phi > 0]).sum() for phi in (phi_q, phi_d)
    )
    for i, pair in enumerate(PAIRS):
        for text, phi in zip(pair, (phi_q, phi_d), strict=True):
            wanted += sum(n * np.log(phi[w] @ theta[i]) for w, n in text.items())
    assert run(found, 1)[0] == pytest.approx(wanted)


def test_the_projection_satisfies_its_constraint() -> None:
    found = learner(PR)
    run(found, 4)
    phi_q, phi_d, theta = found.phi_q.copy(), found.phi_d.copy(), found.theta.copy()
    run(found, 1)
    assert found.evaluations[:5, 2].max() < 1e-9
    for i, (query, document) in enumerate(PAIRS):
        if not query or not document:
            assert not found.multipliers[i].any()
            continue
        tilt = found.multipliers[i]
        p = posteriors(query, phi_q, theta[i] * np.exp(-tilt / sum(query.values())))
        r = posteriors(document, phi_d, theta[i] * np.exp(tilt / sum(document.values())))
        np.testing.assert_allclose(shares(query, p), shares(document, r), atol=1e-9)
        # Without the constraint the shares differ.
        before = shares(query, posteriors(query, phi_q, theta[i]))
        assert np.abs(before - shares(document, posteriors(document, phi_d, theta[i]))).sum() > 1e-6


def test_a_projection_that_stops_early_reports_its_gap() -> None:
    found = learner(LanguageSettings(projection_steps=1, projection_tolerance=0.0))
    run(found, 2)
    assert (found.evaluations[:2, 0] > 1).all()
    assert (found.evaluations[:2, 2] > 1e-9).all()


def test_without_projection_steps_the_regularised_model_is_the_plain_one() -> None:
    """A tolerance as large as the largest gap removes the constraint: the bits are the same."""
    plain, free = learner(PLAIN), learner(replace(PR, projection_tolerance=2.0))
    run(plain, 6)
    run(free, 6)
    for name in ("phi_q", "phi_d", "theta"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(free, name))


def test_the_gradient_of_the_dual_is_the_constraint_gap() -> None:
    """−∂V/∂λ_z by finite differences of the likelihood under tilted topics."""
    rng = np.random.default_rng(5)
    phi = rng.random((WORDS, TOPICS))
    theta, multipliers = rng.random(TOPICS), rng.standard_normal(TOPICS)
    sides = [rows(0).take(np.array([7])), rows(1).take(np.array([7]))]
    sizes = [float(side.values.sum()) for side in sides]

    def value(at: Float64) -> tuple[float, list[Float64]]:
        total, expected = 0.0, []
        for side, size, sign in zip(sides, sizes, (-1, 1), strict=True):
            tilted, found = np.empty(TOPICS), np.empty(TOPICS)
            kept, n = np.empty(len(side.indices)), side.values.astype(np.float64)
            em._tilt(theta, at, sign / size, tilted)
            total += em._likelihood(side.indices, n, phi, tilted, kept)
            em._expected(side.indices, kept, phi, tilted, found)
            expected.append(found)
        return total, expected

    gradient = np.empty(TOPICS)
    expected_q, expected_d = value(multipliers)[1]
    em._gap(expected_q, expected_d, sizes[0], sizes[1], gradient)
    for z in range(TOPICS):
        step = np.zeros(TOPICS)
        step[z] = 1e-5
        slope = (value(multipliers + step)[0] - value(multipliers - step)[0]) / 2e-5
        assert -slope == pytest.approx(gradient[z], abs=1e-8)


def test_learning_from_documents_makes_pairs_without_a_query() -> None:
    """PLSA has one φ for both sides, and empty texts change nothing."""
    settings = LanguageSettings(merged=True)
    empty = Rows.from_lists([([], [])] * len(PAIRS), WORDS)
    rng = np.random.default_rng(1)
    found = TopicLearner(empty, rows(1), settings, topics=TOPICS, epochs=9, rng=rng)
    values = run(found, 9)
    assert np.all(np.diff(values) > -1e-9)
    assert found.phi_q is found.phi_d
    assert not found.phi_d[[0, 1, 7, 11]].any()
    np.testing.assert_allclose(found.phi_d.sum(axis=0), 1)
    np.testing.assert_array_equal(found.theta[4], 0.25)


def test_a_restored_learner_continues_with_the_same_bits() -> None:
    straight, stopped, resumed = learner(PR), learner(PR), learner(PR, seed=8)
    run(straight, 6)
    run(stopped, 3)
    resumed.restore(
        {name: array.copy() for name, array in stopped.parameters().items()},
        {name: array.copy() for name, array in stopped.state().items()},
    )
    run(resumed, 3)
    for name, array in {**straight.parameters(), **straight.state()}.items():
        np.testing.assert_array_equal({**resumed.parameters(), **resumed.state()}[name], array)


def test_threads_do_not_change_a_bit() -> None:
    before = numba.get_num_threads()
    found = []
    try:
        for threads in (1, numba.config.NUMBA_NUM_THREADS):  # type: ignore[attr-defined]
            numba.set_num_threads(threads)
            found.append(learner(PR))
            run(found[-1], 3)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0].phi_q, found[1].phi_q)
    np.testing.assert_array_equal(found[0].theta, found[1].theta)
