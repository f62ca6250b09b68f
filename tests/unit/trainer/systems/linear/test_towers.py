"""Towers: forward values against a float64 twin, every gradient against finite differences."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.models.linear import LinearModel
from fullrank.models.linear.sides import Tower
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Rows
from fullrank.text.words import trigrams
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.linear import warm as going_on
from fullrank_trainer.systems.linear.batches import Scratch
from fullrank_trainer.systems.linear.parameters import scan_documents, scan_queries, start
from fullrank_trainer.systems.linear.softmax import SoftmaxLearner
from fullrank_trainer.systems.linear.system import average
from fullrank_trainer.systems.linear.towers import (
    Encoder,
    Tape,
    adagrad,
    layers,
    start_table,
    start_tower,
)
from fullrank_trainer.systems.linear.warm import copy_learned
from fullrank_trainer.train import TrainResult, train
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import Interrupted, TrainingRun
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.validation import validation
from fullrank_trainer.training.warm import WarmStart
from tests.planted import write_planted
from tests.unit.trainer.systems.linear.test_kernels import FEATURES, nasty_rows

SHAPES = {
    "linear": ((), False, 0.0),
    "cosine": ((), False, 7.0),
    "one": ((5,), False, 0.0),
    "paper": ((5, 6, 4), False, 7.0),
    "skip": ((5, 6, 5), True, 0.0),
    "skip cosine": ((5, 5), True, 7.0),
}


@dataclass(frozen=True, eq=False)
class Case:
    """A side and its γ."""

    encoder: Encoder
    gamma: float

    def forward(self, x: Rows) -> Tape:
        """See Encoder."""
        return self.encoder.forward(Phi(x), self.gamma, Scratch())

    def arrays(self) -> dict[str, np.ndarray]:
        """All learned arrays, live."""
        return {"table": self.encoder.table, **dict(self.encoder.tower.arrays())}

    def float64(self) -> dict[str, np.ndarray]:
        """A copy."""
        return {name: array.astype(np.float64) for name, array in self.arrays().items()}

    def twin(self, values: dict[str, np.ndarray], x: Rows) -> np.ndarray:
        """u by the formulas, float64, densely."""
        phi = x.csr().toarray().astype(np.float64)
        y = a = phi @ values["table"]
        depth, skip = len(self.encoder.tower.biases), self.encoder.tower.skip
        for i in range(depth):
            p = (y @ values[f"W{i}"] if i else a) + values[f"b{i}"]
            y = p if skip and i == depth - 1 else np.tanh(p)
        y = a + y if skip else y
        if self.gamma:
            norm = np.linalg.norm(y, axis=1, keepdims=True)
            y = self.gamma * y / np.where(norm == 0, 1, norm)
        return np.where(np.diff(x.indptr)[:, None] > 0, y, 0)


@pytest.fixture(params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> Case:
    sizes, skip, gamma = SHAPES[request.param]
    rng = np.random.default_rng(2)
    made = start_tower(sizes, skip, rng)
    for _, array in made.arrays():
        array += rng.standard_normal(array.shape).astype(np.float32) / 3
    table = rng.standard_normal((FEATURES, 5)).astype(np.float32)
    return Case(Encoder(table, made), gamma)


def test_forward_equals_its_numpy_twin(case: Case) -> None:
    x = nasty_rows()
    u = case.forward(x).u
    assert u.dtype == np.float32
    np.testing.assert_allclose(u, case.twin(case.float64(), x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(u[np.diff(x.indptr) == 0], 0)


def test_training_and_serving_score_the_same(case: Case) -> None:
    """Matrix products and the served sums are the same function up to rounding."""
    a = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    tower = case.encoder.tower
    served = tower.apply(a)
    np.testing.assert_allclose(layers(tower, a)[0], served, rtol=1e-5, atol=1e-6)


def test_gradients_by_finite_differences(case: Case) -> None:
    """L = Σ g·u with a random g: its slope along random directions and single entries, array by array.

    AdaGrad from sums of 10⁶ at a rate of 10³ makes one step the gradient itself, to six figures.
    """
    x, rng = nasty_rows(), np.random.default_rng(5)
    tape = case.forward(x)
    g = rng.standard_normal(tape.u.shape).astype(np.float32)
    g[9] = 0  # a zero row: its norm has no derivative
    before = case.float64()
    for _, total in case.encoder.state():
        total[...] = 1e6
    case.encoder.step([case.encoder.backward(tape, g)], rate=1e3, layer_rate=1e3)

    def loss(values: dict[str, np.ndarray]) -> float:
        return float((case.twin(values, x) * g).sum())

    for name, array in case.arrays().items():
        gradient = before[name] - array
        scale = np.abs(gradient).max()
        places = rng.permutation(np.argwhere(np.abs(gradient) > scale / 10))[:5]
        directions = [rng.standard_normal(array.shape), *np.zeros((len(places), *array.shape))]
        for direction, place in zip(directions[1:], places, strict=True):
            direction[tuple(place)] = 1
        for direction in directions:
            ends = [loss(before | {name: before[name] + s * direction}) for s in (1e-6, -1e-6)]
            slope = (ends[0] - ends[1]) / 2e-6
            found = float((gradient * direction).sum())
            assert found == pytest.approx(slope, rel=1e-2, abs=1e-2 * scale), name


def test_words_are_composed_before_texts_read_them(case: Case) -> None:
    """Values and steps are those of φ multiplied out."""
    rng = np.random.default_rng(4)
    words = np.where(rng.random((12, 30)) < 0.3, rng.random((12, 30)), 0)
    words[[2, 7]] = 0
    parts = np.where(rng.random((30, FEATURES)) < 0.3, rng.random((30, FEATURES)), 0)
    x, C = (Rows.from_csr(sp.csr_array(m.astype(np.float32))) for m in (words, parts))
    phi = Phi(x, C)
    np.testing.assert_allclose(phi.composed().csr().toarray(), words @ parts, rtol=1e-5)
    assert (len(phi), phi.width) == (12, FEATURES)
    tables, values = [], []
    start = case.encoder.table.copy()
    g = rng.standard_normal((12, case.forward(phi.composed()).u.shape[1])).astype(np.float32)
    for given in (phi, Phi(phi.composed()), phi.slice(0, 12)):
        encoder = Encoder(start.copy(), case.encoder.tower.copy())
        encoder.squares[:] = 1
        tape = encoder.forward(given, case.gamma, Scratch())
        encoder.step([encoder.backward(tape, g)], rate=0.1, layer_rate=0.0)
        values.append(tape.u)
        tables.append(encoder.table)
    for found, wanted in ((values, values[1]), (tables, tables[1])):
        for mine in found:
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    assert not np.allclose(tables[0], start)


def test_a_tied_step_adds_the_gradients_of_both_sides() -> None:
    """A tied tower takes one step on the sum; the order of the sides does not change its layers."""
    rng = np.random.default_rng(0)
    table, made = (
        rng.standard_normal((FEATURES, 5)).astype(np.float32),
        start_tower((5, 3), False, rng),
    )

    def stepped(order: slice) -> Encoder:
        copy = Tower([w.copy() for w in made.weights], [b.copy() for b in made.biases])
        encoder = Encoder(table.copy(), copy)
        sides = [encoder.forward(Phi(nasty_rows(seed)), 0.0, Scratch()) for seed in (0, 1)]
        gradients = [encoder.backward(side, np.ones_like(side.u)) for side in sides]
        for _, total in encoder.state():
            total[...] = 1
        encoder.step(gradients[order], 0.1, 0.1)
        return encoder

    both, back = stepped(slice(None)), stepped(slice(None, None, -1))
    once = dict(stepped(slice(0, 1)).tower.arrays())
    for (name, a), (_, b) in zip(both.tower.arrays(), back.tower.arrays(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert (a != once[name]).any()


def test_adagrad_equals_hand_computed_steps() -> None:
    array, squares = np.ones(3, np.float32), np.array([0, 9, 0], np.float32)
    adagrad(array, squares, np.array([2, 4, 0], np.float32), 0.5)
    np.testing.assert_allclose(squares, [4, 25, 0])
    np.testing.assert_allclose(array, [0.5, 0.6, 1])


@pytest.mark.parametrize("skip", [False, True])
def test_layers_and_tables_start_within_their_bounds(skip: bool) -> None:
    """Uniform within ±√(6/(in + out)), biases 0; with skip the last layer is 0: the table alone."""
    made = start_tower((40, 60, 40), skip, np.random.default_rng(0))
    bound = np.sqrt(6 / 100)
    assert bound * 0.95 < np.abs(made.weights[0]).max() <= bound
    assert not any(bias.any() for bias in made.biases)
    assert made.weights[1].any() != skip
    assert not start_tower((), False, np.random.default_rng(0))
    table = start_table(40, 60, 0.0, np.random.default_rng(0))
    assert table.shape == (40, 60)
    assert bound * 0.95 < np.abs(table).max() <= bound
    assert start_table(400, 60, 0.3, np.random.default_rng(0)).std() == pytest.approx(0.3, rel=0.05)
    again = [start_tower((3, 4), False, np.random.default_rng(4)) for _ in range(2)]
    np.testing.assert_array_equal(again[0].weights[0], again[1].weights[0])


pytestmark = pytest.mark.usefixtures("one_thread")

QUIET = Reporter(quiet=True)
TINY = ("dimension=6", "epochs=3", "batch=32", "candidates=30", "trigrams=on")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents in another order, one of them gone, one new with new words, fewer queries."""
    folder = write_planted(tmp_path_factory.mktemp("changed"))
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    kept = [line for line in lines[::-1] if json.loads(line)["_id"] != "d3-3"]
    new = {"_id": "new", "title": "aaa zzz", "text": "decoy1 mmm zzz tell0a"}
    kept.insert(4, json.dumps(new))
    (folder / "corpus.jsonl").write_text("\n".join(kept) + "\n", "utf-8")
    qrels = (folder / "qrels" / "train.tsv").read_text("utf-8").splitlines()
    few = [line for line in qrels[1:200] if "\td3-3\t" not in line]
    (folder / "qrels" / "train.tsv").write_text("\n".join([qrels[0], *few]) + "\n", "utf-8")
    for split in ("valid", "test"):
        path = folder / "qrels" / f"{split}.tsv"
        rest = [line for line in path.read_text("utf-8").splitlines() if "\td3-3\t" not in line]
        path.write_text("\n".join(rest) + "\n", "utf-8")
    return folder


def trained(
    collection: Path, out: Path, *overrides: str, recipe: str | None = "fielded", **changes: Any
) -> TrainResult:
    return train(
        collection, out, "mine", recipe=recipe, overrides=overrides, threads=1, reporter=QUIET,
        **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Three averaged fits, with trigrams, phrases and biases."""
    return open_bundle(trained(planted, tmp_path_factory.mktemp("out"), *TINY, "members=3").path)


def features_of(folder: Path, warm: WarmStart) -> tuple[Features, list[str]]:
    collection = read_collection(folder)
    corpus = count_collection(collection, processes=1)
    return build_features(corpus, warm.recipe.model), list(collection.document_ids)


@pytest.mark.parametrize("member", [0, 2])
def test_rows_of_shared_words_are_copied_whatever_their_order(
    member: int, bundle: Bundle, changed: Path
) -> None:
    """A word's row plus those of its trigrams is its row in the bundle; the twin goes word by word."""
    warm = replace(WarmStart.of(bundle), member=member)
    features, ids = features_of(changed, warm)
    parameters = start(features, warm.recipe.train, np.random.default_rng(5))
    before = parameters.copy()
    found = copy_learned(warm, features, parameters, ids)
    model = bundle.model
    assert isinstance(model, LinearModel)
    columns = slice(6 * member, 6 * member + 6)
    shared = new = 0
    for table, random, composition, side, stored in (
        (parameters.U, before.U, features.query_composition, features.model.query, model.query),
        (parameters.V, before.V, features.document_composition, features.model.document, model.document),
    ):  # fmt: skip
        letters = {g: stored.trigram_table[i, columns] for i, g in enumerate(stored.trigrams.words)}
        for i, word in enumerate(composition.labels):
            if word not in stored.words.known:
                np.testing.assert_array_equal(table[i], random[i])
                new += 1
                continue
            parts = trigrams(word)
            total = table[i] / 3**0.5
            for g in parts:
                if g in letters:
                    total = total + letters[g] / len(parts) ** 0.5
            wanted = stored.table[stored.words.row(word), columns]
            np.testing.assert_allclose(total, wanted, atol=1e-6)
            shared += 1
        for i, g in enumerate(side.trigrams.words):
            row = table[len(composition.labels) + i]
            if g in letters:
                np.testing.assert_allclose(row, letters[g] * 3**0.5, rtol=1e-6)
            else:
                np.testing.assert_array_equal(row, random[len(composition.labels) + i])
    assert (found["words"], found["of"]) == (shared, shared + new)
    assert shared > 50
    assert new >= 3
    old = {id: row for row, id in enumerate(bundle.documents.ids)}
    level = np.median(bundle.encoded.bias)
    for id, bias in zip(ids, parameters.bias.tolist(), strict=True):
        assert bias == pytest.approx(bundle.encoded.bias[old[id]] if id in old else level)
    stored_D = model.sparse.D
    words = {word: row for row, word in enumerate(model.sparse.words.words)}
    for f in range(len(stored_D)):
        for i, word in enumerate(features.model.sparse.words.words):
            wanted = stored_D[f, words[word]] if word in words else np.median(stored_D[f])
            assert parameters.D[f, i] == pytest.approx(wanted)


@pytest.mark.parametrize(
    "overrides",
    [
        ("members=3",),
        ("tied=true",),
        ("loss=margin", "rates=0.05", "bias=false"),
        ("trigrams=only",),
    ],
)
def test_a_warm_start_without_a_step_is_the_bundle(
    overrides: tuple[str, ...], planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rates of zero the new bundle scores as the old one."""
    first = open_bundle(trained(planted, tmp_path, *TINY, *overrides).path)
    monkeypatch.setattr(going_on, "RATE", 0.0)
    still = ("rates=0",) if "loss=margin" in overrides else ()
    result = trained(planted, tmp_path, *still, recipe=None, start=first.path, seed=9)
    second = open_bundle(result.path)
    assert second.card["recipe"]["name"] == "fielded"
    assert [row.system for row in result.table] == ["fielded"]
    assert second.model.n_dense == first.model.n_dense
    for text in ("ask0a decoy1", "shared3", "name2n1", "nothing ask5c"):
        one, other = (
            {hit.id: hit.score for hit in bundle.search(text, 36)} for bundle in (first, second)
        )
        assert one.keys() == other.keys()
        np.testing.assert_allclose(
            [other[id] for id in one], list(one.values()), rtol=1e-4, atol=1e-4
        )


def test_a_warm_start_learns_from_where_the_bundle_ended(
    bundle: Bundle, planted: Path, tmp_path: Path
) -> None:
    """Its first loss is below that of the first epoch of a training that starts anew, and it takes fewer epochs."""
    found = open_bundle(trained(planted, tmp_path, start=bundle.path, recipe=None).path)
    facts = found.card["training"]
    before = bundle.card["training"]["members"]
    assert facts["warm"]["version"] == bundle.version
    for old, now in zip(before, facts["members"], strict=True):
        assert len(now["history"]) < len(old["history"])
        assert now["history"][0]["loss"] < old["history"][0]["loss"]


def test_what_cannot_go_on_is_refused(bundle: Bundle, planted: Path, tmp_path: Path) -> None:
    def refused(
        match: str, *overrides: str, recipe: str | None = None, path: Path = bundle.path
    ) -> None:
        with pytest.raises(TrainingError, match=match) as error:
            trained(planted, tmp_path, *overrides, recipe=recipe, start=path)
        assert "\n" not in str(error.value)

    refused("has 6 dimensions, not 3; leave out model.dimension", "dimension=3")
    refused("has 6 dimensions, not 256", recipe="fielded")
    refused("was trained by the recipe fielded, not clicked", "dimension=6", recipe="clicked")
    hashed = trained(planted, tmp_path, "dimension=6", "epochs=1", recipe="cfh").path
    refused(r"words share the rows of its tables \(model.hashing\)", path=hashed)


def test_a_bundle_without_a_matrix_changes_nothing(planted: Path, tmp_path: Path) -> None:
    first = trained(planted, tmp_path, recipe="bm25").path
    anew, after = (
        open_bundle(trained(planted, tmp_path / str(i), recipe="bm25", start=path).path)
        for i, path in enumerate((None, first))
    )
    assert anew.bundle_id == after.bundle_id


def test_the_recipe_of_a_card_is_read_back(bundle: Bundle) -> None:
    warm = WarmStart.of(bundle)
    assert json.loads(json.dumps(warm.recipe.as_dict())) == json.loads(
        json.dumps(bundle.card["recipe"])
    )
    assert warm.fits(warm.recipe.override(["train.seconds=3", "valid_queries=7"]))
    assert not warm.fits(warm.recipe.override(["train.rate=0.5"]))


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
