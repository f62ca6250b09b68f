"""Fitting word pairs: kernels, learning, removing weights, restoring W from violating triples, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fullrank.errors import RecipeError, TrainingError
from fullrank.models.pairs import PRIME, PairRows, PairTable, window_starts
from fullrank.storage.encoding import Rows
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems import pairs as fitting
from fullrank_trainer.systems import pairs as kernels
from fullrank_trainer.systems.pairs import PairLearner, PairSettings, PairTexts, build_texts
from fullrank_trainer.training.validation import Validation, validation
from tests.planted import write_planted

pytestmark = pytest.mark.usefixtures("one_thread")

TRAIN = TrainSettings(loss="margin", rates=(0.3,), triples=1500)
STORES = {
    "dense": PairSettings(),
    "zero diagonal": PairSettings(identity="none", zero_diagonal=True),
    "sparse": PairSettings(keep=5, removal=0.6),
    "hash": PairSettings(store="hash", slots=2003),
    "hash and identity": PairSettings(store="hash", slots=2003, identity="apart"),
}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return read_collection(write_planted(tmp_path_factory.mktemp("pairs")))


@pytest.fixture(scope="module")
def texts(collection: Collection) -> PairTexts:
    return build_texts(count_collection(collection, processes=1), ModelSettings(), 0)


@pytest.fixture(scope="module")
def valid(collection: Collection) -> Validation:
    found = validation(count_collection(collection, processes=1), 0)
    assert found is not None
    return found


def learner(texts: PairTexts, store: str, train: TrainSettings = TRAIN) -> PairLearner:
    return PairLearner(texts, STORES[store], train, np.random.default_rng(1))


def epochs(fitted: PairLearner, count: int) -> list[float]:
    """The mean hinge of each epoch."""
    return [float(np.mean([loss for _, loss in fitted.steps(0, 1)])) for _ in range(count)]


@pytest.mark.parametrize("store", STORES)
def test_word_pairs_learn_synonyms(store: str, texts: PairTexts, valid: Validation) -> None:
    """Half of the queries share no useful word with their documents; the best MAP is 1."""
    fitted = learner(texts, store)
    before = fitted.measure(valid)
    losses = epochs(fitted, 6)
    assert losses[-1] < losses[0] / 2
    assert fitted.measure(valid) > max(0.9, before + 0.2)


def test_the_vocabulary_has_the_words_of_both_sides(texts: PairTexts) -> None:
    words = set(texts.side.words.words)
    assert {"ask0a", "tell0a", "shared0", "decoy1"} <= words
    norms = np.add.reduceat(np.square(texts.xq.values), texts.xq.indptr[:-1])
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


@pytest.mark.parametrize("store", STORES)
def test_W_starts_as_the_identity(store: str, texts: PairTexts) -> None:
    fitted = learner(texts, store)
    found = fitted.store().expand(texts.xq)
    wanted = texts.xq.csr().toarray()
    if store == "zero diagonal":
        wanted = wanted * 0
    diagonal = found.csr().toarray()
    if store == "hash":
        assert fitted.table.sum() == len(texts.side.words)
        assert (diagonal + 1e-6 >= wanted).all()  # plus weights that collide with it
    else:
        np.testing.assert_array_equal(diagonal, wanted)


@pytest.mark.parametrize("store", STORES)
def test_restore_gives_the_same_W(store: str, texts: PairTexts) -> None:
    """Restoring the first of three epochs gives the same bits, in the same learner and in a new one."""
    fitted = learner(texts, store)
    epochs(fitted, 1)
    parameters = {name: array.copy() for name, array in fitted.parameters().items()}
    table, alpha, closed = fitted.table.copy(), fitted.alpha.copy(), fitted.closed
    epochs(fitted, 2)
    assert not np.array_equal(table, fitted.table)
    for again in (fitted, learner(texts, store, replace(TRAIN, rates=(0.9,)))):
        again.restore(parameters, {})
        np.testing.assert_array_equal(again.table, table)
        assert again.alpha[0] == alpha[0]
        assert again.closed == closed
        assert again.rate[0] == 0.3
    # Restoring the current state changes nothing.
    same = fitted.table
    fitted.restore(parameters, {})
    assert fitted.table is same


def test_rows_of_a_sparse_W_shrink_to_p(texts: PairTexts) -> None:
    fitted = learner(texts, "sparse")
    longest = []
    for _ in range(5):
        epochs(fitted, 1)
        W = fitted.table.reshape(fitted.width, fitted.width)
        longest.append(int((W != 0).sum(axis=1).max()))
    assert sorted(longest, reverse=True) == longest
    assert longest[0] > 5 == longest[-1]
    store = fitted.store()
    assert isinstance(store, PairRows)
    np.testing.assert_array_equal(store.rows.csr().toarray(), W)


def test_served_W_keeps_p_weights_a_row_even_early_in_training(texts: PairTexts) -> None:
    fitted = learner(texts, "sparse")
    epochs(fitted, 1)
    store = fitted.store()
    assert isinstance(store, PairRows)
    assert np.diff(store.rows.indptr).max() == 5


def test_the_diagonal_stays_zero(texts: PairTexts) -> None:
    fitted = learner(texts, "zero diagonal")
    epochs(fitted, 2)
    W = fitted.table.reshape(fitted.width, fitted.width)
    assert (np.diag(W) == 0).all()
    assert np.count_nonzero(W) > 100


def test_alpha_is_learned_together_with_the_table(texts: PairTexts) -> None:
    fitted = learner(texts, "hash and identity")
    assert fitted.alpha[0] == 1
    assert not fitted.table.any()
    epochs(fitted, 2)
    store = fitted.store()
    assert isinstance(store, PairTable)
    assert store.alpha == fitted.alpha[0] > 1


def test_rate_is_chosen_by_training_error(texts: PairTexts) -> None:
    """A rate that hardly changes W is not chosen, and the trial does not change the learner."""
    fitted = learner(texts, "dense", replace(TRAIN, rates=(1e-6, 0.3), trial=1000))
    start = fitted.table.copy()
    fitted.prepare()
    assert fitted.rate[0] == 0.3
    np.testing.assert_array_equal(fitted.table, start)
    assert len(fitted.parameters()["violations"]) == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["store=hash", "keep=3"], "need pairs"),
        (["store=hash", "zero_diagonal=true"], "need pairs"),
        (["identity=apart"], "needs pairs"),
        (["loss=softmax"], "trained with"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        validate(load_recipe("ssi-dense").override(overrides))


def test_a_dense_W_beyond_the_memory_limit_is_refused(
    texts: PairTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "MAX_WEIGHTS", 100)
    with pytest.raises(TrainingError, match="at most 10"):
        learner(texts, "dense")


@pytest.mark.parametrize(
    ("splits", "settings", "reason"),
    [((), {}, "no judged pair"), (("train",), {"min_df": 1000}, "no word")],
)
def test_nothing_to_learn_from_is_refused(
    splits: tuple[str, ...], settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    corpus = count_collection(read_collection(write_planted(tmp_path, splits=splits)), processes=1)
    with pytest.raises(TrainingError, match=reason):
        build_texts(corpus, ModelSettings(**settings), 0)


WIDTH = 7
# Empty, one word, a whole row, explicit zeros, and ordinary ones.
TEXTS: list[tuple[list[int], list[float]]] = [
    ([], []),
    ([3], [1.0]),
    (list(range(WIDTH)), [0.1, -0.5, 0.25, 0.0, 0.75, -0.125, 0.3]),
    ([1, 4], [0.0, 0.0]),
    ([0, 2, 6], [0.5, 0.25, 0.75]),
    ([2, 3, 5], [0.6, -0.2, 0.4]),
]
TEXT_ROWS = Rows.from_lists(TEXTS, WIDTH)
TRIPLES = np.array([(q, d, n) for q in range(6) for d in range(6) for n in range(6)], np.int64)
PAIR_KERNELS_STORES = {
    "whole": (WIDTH, WIDTH * WIDTH),
    "hashed": (PRIME, 23),
    "smaller than a row": (PRIME, 5),
    "one": (PRIME, 1),
}


class Twin:
    """The twin in float64, pair by pair."""

    def __init__(self, prime: int, table: np.ndarray, alpha: float, *, off_diagonal: bool) -> None:
        self.table, self.alpha, self.off_diagonal = table.astype(np.float64), alpha, off_diagonal
        i, j = np.indices((WIDTH, WIDTH))
        self.slot = (i * prime + j) % len(table)
        self.x = TEXT_ROWS.csr().toarray().astype(np.float64)

    def W(self) -> np.ndarray:
        """The dense matrix of the table."""
        W = self.table[self.slot]
        if self.off_diagonal:
            np.fill_diagonal(W, 0)
        return W + self.alpha * np.eye(WIDTH)

    def hinge(self, triple: np.ndarray) -> float:
        """max(0, 1 − f(q,d⁺) + f(q,d⁻))."""
        q, d, n = self.x[triple]
        return max(0.0, 1 - float(q @ self.W() @ (d - n)))

    def gradient(self, triple: np.ndarray) -> tuple[np.ndarray, float]:
        """−∂L/∂w and −∂L/∂α of a violated triple."""
        q, d, n = self.x[triple]
        pairs = np.outer(q, d - n)
        if self.off_diagonal:
            np.fill_diagonal(pairs, 0)
        step = np.zeros_like(self.table)
        np.add.at(step, self.slot, pairs)
        return step, float(q @ (d - n))


def run(
    prime: int, table: np.ndarray, alpha: np.ndarray, triples: np.ndarray, rate: float, *,
    apart: bool = False, off_diagonal: bool = False, closed: bool = False,
    always: bool = False,
) -> np.ndarray:  # fmt: skip
    """The kernel on some triples, in place."""
    losses = np.zeros(len(triples), np.float32)
    text = (TEXT_ROWS.indptr, TEXT_ROWS.indices, TEXT_ROWS.values)
    kernels.pair_sgd(
        triples, 1, text, text, window_starts(WIDTH, prime, len(table)), table, alpha,
        np.ones(WIDTH if apart else 0, np.float32), off_diagonal, closed, rate, always, losses,
    )  # fmt: skip
    return losses


def random_table(slots: int) -> np.ndarray:
    return np.random.default_rng(slots).standard_normal(slots).astype(np.float32)


@pytest.mark.parametrize("store", PAIR_KERNELS_STORES)
@pytest.mark.parametrize(("apart", "off_diagonal"), [(False, False), (True, False), (False, True)])
def test_a_step_equals_the_papers_update(store: str, apart: bool, off_diagonal: bool) -> None:
    """W += λ q(d⁺ − d⁻)ᵀ on every nasty triple; steps of pairs that share a weight add up."""
    prime, slots = PAIR_KERNELS_STORES[store]
    changed = 0
    for triple in TRIPLES:
        table, alpha = random_table(slots), np.array([0.7 if apart else 0.0])
        twin = Twin(prime, table, alpha[0], off_diagonal=off_diagonal)
        wanted = twin.hinge(triple)
        found = run(prime, table, alpha, triple[None], 0.1, apart=apart, off_diagonal=off_diagonal)[
            0
        ]
        assert found == pytest.approx(wanted, abs=2e-6)
        step, step_alpha = twin.gradient(triple)
        rate = 0.1 * (wanted > 0)
        changed += bool(rate and step.any())
        np.testing.assert_allclose(table, twin.table + rate * step, atol=2e-6)
        assert alpha[0] == pytest.approx(twin.alpha + (rate * step_alpha if apart else 0), abs=1e-6)
    assert changed > 20


@pytest.mark.parametrize("store", PAIR_KERNELS_STORES)
def test_a_step_follows_the_negative_gradient_of_the_hinge(store: str) -> None:
    """Finite differences of the hinge in every weight and in α."""
    prime, slots = PAIR_KERNELS_STORES[store]
    checked = 0
    for triple in TRIPLES[::5]:
        table, alpha = random_table(slots), np.array([0.7])
        twin = Twin(prime, table, 0.7, off_diagonal=False)
        if twin.hinge(triple) < 1e-3:
            continue
        before = table.astype(np.float64)
        run(prime, table, alpha, triple[None], 1.0, apart=True)
        for slot in range(slots):
            sides = []
            for nudge in (1e-6, -1e-6):
                twin.table = before.copy()
                twin.table[slot] += nudge
                sides.append(twin.hinge(triple))
            gradient = (sides[0] - sides[1]) / 2e-6
            assert table[slot] - before[slot] == pytest.approx(-gradient, rel=1e-3, abs=1e-5)
        twin.table, sides = before, []
        for nudge in (1e-6, -1e-6):
            twin.alpha = 0.7 + nudge
            sides.append(twin.hinge(triple))
        assert alpha[0] - 0.7 == pytest.approx((sides[1] - sides[0]) / 2e-6, rel=1e-3, abs=1e-5)
        checked += 1
    assert checked > 10


def test_a_table_without_collisions_equals_the_dense_matrix() -> None:
    """Without collisions hashing changes nothing: hinges and W are equal after the same triples."""
    slots = 1_000_003
    i, j = np.indices((WIDTH, WIDTH))
    slot = (i * PRIME + j) % slots
    assert len(np.unique(slot)) == WIDTH * WIDTH
    rng = np.random.default_rng(5)
    triples = TRIPLES[rng.integers(0, len(TRIPLES), 500)]
    whole, hashed = np.zeros(WIDTH * WIDTH, np.float32), np.zeros(slots, np.float32)
    none = np.zeros(1)
    a = run(WIDTH, whole, none, triples, 0.3)
    b = run(PRIME, hashed, none, triples, 0.3)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.reshape(WIDTH, WIDTH), hashed[slot])
    assert (a > 0).any()
    assert (a == 0).any()


def test_closed_weights_stay_zero() -> None:
    table = random_table(WIDTH * WIDTH)
    table[::3] = 0
    before = table.copy()
    run(WIDTH, table, np.zeros(1), TRIPLES, 0.1, closed=True)
    assert (table[::3] == 0).all()
    assert (table != before).sum() > 10


def test_measuring_changes_nothing_and_always_steps() -> None:
    table, alpha = random_table(23), np.array([0.5])
    before = table.copy()
    measured = run(PRIME, table, alpha, TRIPLES, 0.0, apart=True)
    np.testing.assert_array_equal(table, before)
    assert alpha[0] == 0.5
    assert (measured == 0).any()
    satisfied = TRIPLES[measured == 0][-1:]
    run(PRIME, table, alpha, satisfied, 0.1, apart=True, always=True)
    step, step_alpha = Twin(PRIME, before, 0.5, off_diagonal=False).gradient(satisfied[0])
    np.testing.assert_allclose(table, before + 0.1 * step, atol=1e-6)
    assert alpha[0] == pytest.approx(0.5 + 0.1 * step_alpha)


def test_replaying_the_violating_triples_restores_the_table() -> None:
    """The table is equal bit for bit."""
    first, second, alpha = random_table(23), random_table(23), np.array([0.5])
    losses = run(PRIME, first, alpha, TRIPLES, 0.1, apart=True)
    again = np.array([0.5])
    run(PRIME, second, again, TRIPLES[losses > 0], 0.1, apart=True, always=True)
    np.testing.assert_array_equal(first, second)
    assert alpha[0] == again[0]


def test_shards_cover_every_triple() -> None:
    """On several threads each triple is used once."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    table, alpha, losses = random_table(23), np.zeros(1), np.zeros(len(TRIPLES), np.float32)
    text = (TEXT_ROWS.indptr, TEXT_ROWS.indices, TEXT_ROWS.values)
    kernels.pair_sgd(
        TRIPLES, numba.get_num_threads(), text, text, window_starts(WIDTH, PRIME, 23), table, alpha,
        np.zeros(0, np.float32), False, False, 0.0, False, losses,
    )  # fmt: skip
    numba.set_num_threads(1)
    np.testing.assert_array_equal(losses, run(PRIME, table, alpha, TRIPLES, 0.0))
