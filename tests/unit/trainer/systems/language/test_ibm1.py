"""IBM Model 1: EM against a plain reading, a likelihood that never falls, and words it must pair."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.encoding import Rows
from fullrank_trainer.systems.translation import translation_table

Pair = tuple[dict[int, float], dict[int, float]]


def rows(texts: list[dict[int, float]], width: int) -> Rows:
    return Rows.from_lists([(list(text), list(text.values())) for text in texts], width)


def random_pairs(seed: int, count: int, words: int) -> list[Pair]:
    """Texts of up to six words with counts; some sides are empty."""
    rng = np.random.default_rng(seed)

    def text() -> dict[int, float]:
        chosen = rng.choice(words, rng.integers(0, 7), replace=False)
        return {int(w): float(rng.integers(1, 4)) for w in chosen}

    return [(text(), text()) for _ in range(count)]


def twin(
    pairs: list[Pair], shape: tuple[int, int], iterations: int
) -> tuple[np.ndarray, list[float]]:
    """Run EM on dense tables, word by word; return the table, and the likelihood before each iteration."""
    P = np.full(shape, 1 / shape[1])
    likelihoods = []
    for _ in range(iterations):
        expected, likelihood = np.zeros(shape), 0.0
        for S, T in pairs:
            if not S:
                continue
            for t, n in T.items():
                shares = {s: m * P[s, t] for s, m in S.items()}
                mass = sum(shares.values())
                likelihood += n * np.log(mass / sum(S.values()))
                for s, share in shares.items():
                    expected[s, t] += n * share / mass
        likelihoods.append(likelihood)
        total = expected.sum(1, keepdims=True)
        P = expected / np.where(total == 0, 1, total)
    return P, likelihoods


def learn(
    pairs: list[Pair], shape: tuple[int, int], iterations: int, floor: float = 0.0
) -> tuple[np.ndarray, list[float]]:
    seen: list[float] = []
    table = translation_table(
        rows([S for S, _ in pairs], shape[0]),
        rows([T for _, T in pairs], shape[1]),
        iterations=iterations,
        floor=floor,
        progress=seen.append,
    )
    return table.toarray(), seen


@pytest.mark.parametrize("seed", range(5))
def test_em_equals_its_numpy_twin(seed: int) -> None:
    pairs = random_pairs(seed, 30, 12)
    found, likelihoods = learn(pairs, (12, 14), 6)
    wanted, expected = twin(pairs, (12, 14), 6)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    np.testing.assert_allclose(likelihoods, expected, rtol=1e-12)


def test_the_likelihood_never_falls_and_rows_sum_to_one() -> None:
    pairs = random_pairs(9, 200, 40)
    found, likelihoods = learn(pairs, (40, 40), 60)
    assert (np.diff(likelihoods) > -1e-9).all()
    assert likelihoods[-1] > likelihoods[0] + 50
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)


def test_words_that_always_occur_together_are_translations() -> None:
    """das Haus, das Buch, ein Buch: words that occur in both of two pairs are translations."""
    das, haus, buch, ein = range(4)
    the, house, book, a = range(4)
    pairs: list[Pair] = [
        ({das: 1, haus: 1}, {the: 1, house: 1}),
        ({das: 1, buch: 1}, {the: 1, book: 1}),
        ({ein: 1, buch: 1}, {a: 1, book: 1}),
    ]
    found, _ = learn(pairs, (4, 4), 100)
    assert found.argmax(1).tolist() == [the, house, book, a]
    assert found[das, the] > 0.99
    assert found[ein, a] > 0.95


def test_small_probabilities_are_dropped() -> None:
    pairs = random_pairs(3, 50, 12)
    whole, _ = learn(pairs, (12, 12), 5)
    found, _ = learn(pairs, (12, 12), 5, floor=0.1)
    kept = whole >= 0.1
    np.testing.assert_array_equal(found > 0, kept)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    share = whole * kept
    np.testing.assert_allclose(found, share / share.sum(1, keepdims=True), atol=1e-12)
    alone, _ = learn(pairs, (12, 12), 5, floor=1.0)
    np.testing.assert_array_equal(np.count_nonzero(alone, axis=1) >= 1, np.ones(12, np.bool_))
    np.testing.assert_allclose(alone.max(1), alone.max(1).clip(1 / 12))


def test_words_without_a_pair_have_no_translation() -> None:
    found, likelihoods = learn([({0: 1}, {}), ({}, {1: 2}), ({}, {})], (3, 3), 4)
    assert not found.any()
    assert likelihoods == [0.0] * 4
    with pytest.raises(ValueError, match="1 source texts, 2 target texts"):
        translation_table(rows([{0: 1}], 2), rows([{}, {}], 2))


def test_a_pair_of_weight_three_counts_as_three_pairs() -> None:
    pairs = random_pairs(5, 20, 8)
    weights = [1 + i % 3 for i in range(20)]
    repeated = [pair for pair, w in zip(pairs, weights, strict=True) for _ in range(w)]
    weighted = [
        (S, {t: w * n for t, n in T.items()}) for (S, T), w in zip(pairs, weights, strict=True)
    ]
    (table, seen), (wanted, likelihoods) = (
        learn(p, (8, 8), iterations=4) for p in (weighted, repeated)
    )
    np.testing.assert_allclose(table, wanted, rtol=1e-6)
    np.testing.assert_allclose(seen, likelihoods, rtol=1e-6)
