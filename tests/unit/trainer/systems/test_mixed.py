"""A mix of two recipes: weighted scores, each part fitted once, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import RecipeError
from fullrank.models.contract import Parts
from fullrank.models.mixed import MixedModel
from fullrank.models.registry import load_model
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, validate
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.train import Trainer
from tests.planted import write_planted

QUIET = Reporter(quiet=True)
SSI = "ssi dimension=4 epochs=2 rates=0.1"


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    collection = read_collection(write_planted(tmp_path / "planted"))
    return Trainer(collection, QUIET, tmp_path, "mixed", seed=1, threads=1, resume=False)


def mix(first: str, second: str, *more: str) -> Recipe:
    return load_recipe("cross-language-mixed").override(
        [f"mixed.recipes={first};{second}", "trials=", *more]
    )


def test_the_score_is_the_weighted_sum_of_both_parts(trainer: Trainer) -> None:
    """Each part counts once, a bias and phrases included."""
    fielded = "fielded dimension=4 epochs=2 batch=32 candidates=30"
    rows = np.arange(0, 60, 7)
    scores = []
    for recipe in (load_recipe("fielded").override(fielded.split()[1:]), load_recipe("bm25")):
        found = trainer.fit(recipe, 0, 0.0).fitted
        scores.append(Retriever(found.documents).scores(found.encode(rows)))
    found = trainer.fit(mix(fielded, "bm25", "alpha=0.3"), 0, 0.0).fitted
    mixed = Retriever(found.documents).scores(found.encode(rows))
    np.testing.assert_allclose(mixed, 0.3 * scores[0] + 0.7 * scores[1], rtol=1e-4, atol=1e-4)
    assert found.documents.bias.any()
    assert [list(part) for part in found.facts["parts"]] == [["best_epoch", "history"], []]


def test_a_search_fits_each_part_once(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []
    plain = linear.learner_of

    def counting(features: Any, recipe: Recipe, *more: Any) -> Any:
        fitted.append(recipe.name)
        return plain(features, recipe, *more)

    monkeypatch.setattr(linear, "learner_of", counting)
    recipe = mix(SSI, "tfidf", "auto.seconds=60").override(["trials=alpha=0.1;alpha=0.4;alpha=0.9"])
    best = trainer.search(recipe)
    assert fitted == ["ssi"]
    measured = {trial["overrides"]: trial["map"] for trial in best.fitted.facts["trials"]}
    assert len(measured) == 3
    assert f"alpha={best.recipe.model.alpha:g}" == max(measured, key=lambda name: measured[name])
    assert len(set(measured.values())) > 1


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("auto", "tfidf", "auto is a mix or a search itself"),
        ("tfidf", "cross-language-mixed", "is a mix or a search itself"),
        ("query-expansion trials=", "tfidf", "query-expansion is not linear in the query"),
        ("tfidf", "absent", "no recipe 'absent'"),
    ],
)
def test_recipes_that_cannot_be_mixed_are_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(mix(first, second))


def test_a_mix_needs_exactly_two_recipes() -> None:
    with pytest.raises(RecipeError, match="name two recipes"):
        validate(load_recipe("cross-language-mixed").override(["mixed.recipes=tfidf"]))


def test_malformed_model_parts_are_refused(trainer: Trainer) -> None:
    model = trainer.fit(mix("tfidf", "bm25"), 0, 0.0).fitted.model
    parts = model.parts()
    assert load_model(parts).config == parts.config
    broken = Parts({**parts.config, "weights": [1.0]}, parts.arrays, parts.strings)
    with pytest.raises(ValueError, match="2 models, 1 weights"):
        MixedModel.from_parts(broken, load_model)
