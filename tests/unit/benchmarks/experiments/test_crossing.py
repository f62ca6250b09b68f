"""Weights by cross validation, against the models that have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments import crossing
from benchmarks.experiments.crossing import halves
from benchmarks.harness.lab import ranked
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import Judgement, judge
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.train import Candidate, Trainer

pytestmark = pytest.mark.usefixtures("few_made_up_words")

QUICK = ("epochs=4", "model.dimension=6")


@pytest.fixture(scope="module")
def trainer(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    source = read_collection(planted)
    out = tmp_path_factory.mktemp("out")
    return Trainer(source, Reporter(quiet=True), out, "x", seed=1, threads=1, resume=False)


@pytest.fixture(scope="module")
def judgements(trainer: Trainer) -> list[Judgement]:
    return judge(trainer.collection, "test", ["train", "valid"])[0]


def fitted(trainer: Trainer, name: str, *overrides: str) -> Candidate:
    return trainer.search(load_recipe(name).override([*QUICK, *overrides]))


def test_measures_of_scores_are_those_of_a_ranking() -> None:
    """Ties by row; what is excluded stands nowhere."""
    judgement = Judgement("q", np.array([1, 4]), np.array([1, 1]), np.array([0]))
    found = crossing.measures_of(np.array([9.0, 3.0, 3.0, 5.0, 1.0]), judgement)
    # The ranking is 3, 1, 2, 4: relevant at the places 2 and 4.
    assert found["map"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found["mrr"] == 0.5
    assert found["ndcg@1"] == 0


@pytest.mark.parametrize("weights", [("lambda2=0",), ("lambda2=0.5",)])
def test_each_half_has_the_measures_of_its_weights(
    trainer: Trainer, judgements: list[Judgement], weights: tuple[str, ...]
) -> None:
    found = fitted(trainer, "bltm", "lambda1=0.2", *weights)
    crossed = crossing.crossed_weights(trainer, found.fitted, judgements)
    for rows in halves(len(judgements)):
        (lambda1,), (lambda2,) = (np.unique(crossed[name][rows]) for name in ("lambda1", "lambda2"))
        again = fitted(trainer, "bltm", f"lambda1={lambda1}", f"lambda2={lambda2}")
        values = ranked(trainer, again.fitted, judgements)
        for name in ("map", "ndcg@1", "ndcg@10", "mrr"):
            np.testing.assert_allclose(crossed[name][rows], values[name][rows], atol=1e-12)
        assert lambda2 == 0 or weights != ("lambda2=0",)


def test_cross_validated_alpha_equals_the_served_mix(
    trainer: Trainer, judgements: list[Judgement]
) -> None:
    found = fitted(trainer, "lsi-tfidf", "trials=model.alpha=0.5")
    crossed = crossing.crossed_alpha(trainer, found.fitted, judgements)
    for rows in halves(len(judgements)):
        (alpha,) = np.unique(crossed["alpha"][rows])
        again = fitted(trainer, "lsi-tfidf", f"trials=model.alpha={alpha}")
        values = ranked(trainer, again.fitted, judgements)
        np.testing.assert_allclose(crossed["ndcg@10"][rows], values["ndcg@10"][rows], atol=1e-6)


def test_halves_contain_every_query_once() -> None:
    first, second = halves(7)
    assert (len(first), len(second)) == (3, 4)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(7))
