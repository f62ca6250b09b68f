"""Averaged fits: the mean of their scores, each with its own seed and checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fullrank.errors import RecipeError
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.linear.parameters import scan_documents, scan_queries, start
from fullrank_trainer.systems.linear.softmax import SoftmaxLearner
from fullrank_trainer.systems.linear.system import average
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import Interrupted, TrainingRun
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.validation import validation
from tests.planted import write_planted

QUIET = Reporter(quiet=True)
SMALL = ["dimension=6", "epochs=2", "batch=32", "candidates=30", "latent_terms=7"]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> TrainingContext:
    numba.set_num_threads(1)
    folder = write_planted(tmp_path_factory.mktemp("members"))
    return TrainingContext(read_collection(folder), QUIET, 1, 1)


def fit(context: TrainingContext, path: Path, members: int, **changes: Any) -> FittedModel:
    recipe = load_recipe("fielded").override([*SMALL, f"members={members}"])
    usual: dict[str, Any] = {"seed": 1, "resume": False}
    valid = validation(context.corpus, 0)
    run = TrainingRun(
        recipe, valid, fingerprint="x", reporter=QUIET, path=path, **{**usual, **changes}
    )
    return linear.fit(context, recipe, run)


def scores(fitted: FittedModel) -> np.ndarray:
    return Retriever(fitted.documents).scores(fitted.encode(np.arange(0, 180, 7)))


def test_an_ensemble_scores_the_mean_of_its_members(
    context: TrainingContext, tmp_path: Path
) -> None:
    both = fit(context, tmp_path / "0.npz", 2)
    alone = [fit(context, tmp_path / f"{s}.npz", 1, seed=s) for s in (1, 2)]
    assert np.abs(scores(alone[0]) - scores(alone[1])).max() > 0.1
    mean = (scores(alone[0]) + scores(alone[1])) / 2
    np.testing.assert_allclose(scores(both), mean, rtol=1e-4, atol=1e-4)
    assert both.model.n_dense == 12
    assert [len(facts["history"]) for facts in both.facts["members"]] == [2, 2]
    np.testing.assert_allclose(
        both.documents.bias, (alone[0].documents.bias + alone[1].documents.bias) / 2, rtol=1e-5
    )


@pytest.mark.parametrize("tied", [False, True])
def test_averaging_parameters_averages_scores(context: TrainingContext, tied: bool) -> None:
    recipe = load_recipe("fielded").override([*SMALL, f"tied={str(tied).lower()}"])
    features = context.features(recipe.model)
    members = [start(features, recipe.train, np.random.default_rng(seed)) for seed in range(3)]
    for i, p in enumerate(members):
        p.D += i
    mean = average([p.copy() for p in members], ArrayFiles())
    assert mean.tied == tied
    assert average(members[:1], ArrayFiles()) is members[0]

    def scan(p: Any) -> np.ndarray:
        queries = scan_queries(features, p, np.arange(5))
        return Retriever(scan_documents(features, p)).scores(queries)

    wanted = np.mean([scan(p) for p in members], axis=0)
    np.testing.assert_allclose(scan(mean), wanted, rtol=1e-4, atol=1e-5)


def test_an_interruption_in_the_second_member_can_be_resumed(
    context: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as without the interruption; the first member is not fitted again."""
    whole = fit(context, tmp_path / "whole.npz", 2)
    made = 0
    original = SoftmaxLearner.steps

    def stop(learner: SoftmaxLearner, done: float, share: float) -> Any:
        nonlocal made
        made += 1
        if made == 4:
            raise Interrupted("now")
        return original(learner, done, share)

    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxLearner, "steps", stop)
        # Save every epoch, so the second member has a checkpoint to resume from.
        patch.setattr("fullrank_trainer.training.loop._CHECKPOINT_EVERY_S", 0.0)
        with pytest.raises(Interrupted):
            fit(context, tmp_path / "cut.npz", 2)
    # The second member was in its second epoch, so a copy of its first lies beside the checkpoint.
    assert sorted(p.name for p in tmp_path.glob("cut*")) == [
        "cut-0.npz", "cut-1.best-1.npz", "cut-1.npz",
    ]  # fmt: skip
    again = fit(context, tmp_path / "cut.npz", 2, resume=True)
    np.testing.assert_array_equal(again.documents.dense, whole.documents.dense)
    np.testing.assert_array_equal(again.documents.sparse.values, whole.documents.sparse.values)
    assert not list(tmp_path.glob("*.best-*"))


def test_averaging_towers_or_cosines_is_refused() -> None:
    recipe = load_recipe("dssm-modern")
    for override in ("layers=256", "model.cosine=5"):
        with pytest.raises(RecipeError, match=r"train\.members: averaging several fits needs"):
            validate(recipe.override(["layers=", "skip=false", override, "members=2"]))
