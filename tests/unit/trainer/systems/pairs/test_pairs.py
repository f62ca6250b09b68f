"""Fitting word pairs: learning, removing weights, restoring W from violating triples, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import RecipeError, TrainingError
from fullrank.models.pairs import PRIME, PairRows, PairTable
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems import pairs as fitting
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


def test_a_hash_table_without_collisions_equals_dense_W(texts: PairTexts) -> None:
    """With a large enough table, hashing equals an unconstrained W, as the papers say."""
    width = len(texts.side.words)
    i, j = np.indices((width, width))
    slots = 40_000_003
    slot = (i * PRIME + j) % slots
    assert len(np.unique(slot)) == width * width
    big = PairLearner(
        texts, PairSettings(store="hash", slots=slots), TRAIN, np.random.default_rng(1)
    )
    whole = learner(texts, "dense")
    assert epochs(big, 2) == epochs(whole, 2)
    np.testing.assert_array_equal(big.table[slot], whole.table.reshape(width, width))


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
