"""Two tasks in turn: each step follows its own hinge, both change V, and few pairs are enough with a second task."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

from fullrank.errors import RecipeError, TrainingError
from fullrank.models.linear.sides import Tower
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems import projections
from fullrank_trainer.systems.linear.batches import Scratch
from fullrank_trainer.systems.linear.margin import JointLearner, read_task, run
from fullrank_trainer.systems.linear.parameters import LinearLearner, Parameters, encode_judged
from fullrank_trainer.systems.linear.system import learner_of as rates_learner_of
from fullrank_trainer.systems.linear.system import start_at_best_rate
from fullrank_trainer.systems.linear.towers import start_tower
from fullrank_trainer.train import Trainer, train
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import validation
from tests.planted import (
    DOCUMENTS,
    SYNONYMS,
    TOPICS,
    write_lines,
    write_planted,
    write_planted_links,
    write_qrels,
)

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = load_recipe("cross-language").override(
    ["dimension=8", "rates=0.1", "trigrams=on", "triples=400", "train.init=0.3"]
)
QUIET = Reporter(quiet=True)


def write_second(folder: Path, corpus: Path) -> Path:
    """A second query set on the planted corpus, in the words of the documents."""
    rng = np.random.default_rng(2)
    queries, pairs = [], []
    for i in range(60):
        topic = i % TOPICS
        letters = rng.choice(list("abcdefgh"[:SYNONYMS]), 2, replace=False)
        queries.append({"_id": f"t{i}", "text": " ".join(f"tell{topic}{x}" for x in letters)})
        pairs += [(f"t{i}", f"d{topic}-{n}") for n in range(DOCUMENTS)]
    write_lines(folder / "queries.jsonl", queries)
    write_qrels(folder / "qrels" / "train.tsv", pairs)
    (folder / "corpus.jsonl").write_bytes((corpus / "corpus.jsonl").read_bytes())
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("joint") / "ask")


@pytest.fixture(scope="module")
def second(folder: Path) -> Path:
    return write_second(folder.parent / "tell", folder)


@pytest.fixture(scope="module")
def context(folder: Path) -> TrainingContext:
    return TrainingContext(read_collection(folder), QUIET, 1, 1)


def learner_of(context: TrainingContext, second: Path, seed: int = 1) -> JointLearner:
    features = context.features(RECIPE.model)
    task = read_task(context, second, features)
    return JointLearner(features, RECIPE.train, np.random.default_rng(seed), task)


def test_triples_alternate_between_the_tasks(context: TrainingContext, second: Path) -> None:
    learner = learner_of(context, second)
    first = len(context.corpus.query_ids)
    assert learner.per_epoch == 800
    queries, positives, negatives = learner.draw(101)
    assert len(queries) == len(positives) == len(negatives) == 102
    assert (queries[::2] < first).all()
    assert (queries[1::2] >= first).all()
    relevant = dict(context.corpus.pairs.items())
    relevant |= {
        first + q: d for q, d in read_task(context, second, learner.features).pairs.items()
    }
    for q, d, n in zip(queries.tolist(), positives.tolist(), negatives.tolist(), strict=True):
        assert d in relevant[q]
        assert n not in relevant[q]


def test_steps_reduce_the_sum_of_both_hinges(context: TrainingContext, second: Path) -> None:
    """Finite differences of  max(0, 1 − q_FᵀUᵀV(d⁺−d⁻)) + max(0, 1 − q_EᵀVᵀV(d⁺−d⁻))  with respect to U and V."""
    learner = learner_of(context, second)
    task = read_task(context, second, learner.features)
    features, both, table = learner.features, learner.both, learner.table
    first, xd = len(features.xq), features.xd.composed().csr().toarray().astype(np.float64)

    def objective(U: np.ndarray, V: np.ndarray, pair: list[tuple[int, int, int]]) -> float:
        total = 0.0
        for q, d, n in pair:
            own = q < first
            x = (features.xq.csr()[[q]] if own else task.x.csr()[[q - first]]).toarray()[0]
            total += max(0.0, 1 - (x @ (U if own else V)) @ ((xd[d] - xd[n]) @ V))
        return total

    triples, checked = learner.draw(16), {"U": 0, "V": 0}
    start = {name: getattr(learner.values, name).astype(np.float64) for name in ("U", "V")}
    for t in range(0, 16, 2):
        pair = [
            (int(q), int(d), int(n))
            for q, d, n in zip(*(c[t : t + 2] for c in triples), strict=True)
        ]
        step = {"U": np.zeros_like(start["U"]), "V": np.zeros_like(start["V"])}
        for triple in pair:  # both from the same start: the gradient of a sum is a sum
            one = tuple(np.array([row]) for row in triple)
            run(both, table, one, 1.0)
            for name, before in start.items():
                step[name] += getattr(learner.values, name) - before
                getattr(learner.values, name)[...] = before
        for name, moved in step.items():
            for place in map(tuple, np.argwhere(np.abs(moved) > 1e-4)[::23]):
                up, down = ({k: v.copy() for k, v in start.items()} for _ in range(2))
                up[name][place] += 1e-6
                down[name][place] -= 1e-6
                gradient = (objective(**up, pair=pair) - objective(**down, pair=pair)) / 2e-6
                assert moved[place] == pytest.approx(-gradient, rel=1e-3, abs=1e-5)
                checked[name] += 1
    assert min(checked.values()) > 5


def test_continuing_from_a_copy_gives_the_same_bits(context: TrainingContext, second: Path) -> None:
    """Two epochs, a copy into another learner and two more epochs equal four epochs."""
    whole, half = learner_of(context, second), learner_of(context, second)
    whole.prepare()
    half.prepare()
    for _ in range(4):
        list(whole.steps(0.0, 0.25))
    for _ in range(2):
        list(half.steps(0.0, 0.25))
    copies = [
        {k: v.copy() for k, v in found.items()} for found in (half.parameters(), half.state())
    ]
    other = learner_of(context, second, seed=9)
    other.restore(*copies)
    other.rng.bit_generator.state = half.rng.bit_generator.state
    for _ in range(2):
        list(other.steps(0.5, 0.25))
    for name, array in whole.parameters().items():
        np.testing.assert_array_equal(other.parameters()[name], array)
    assert whole.values.U.base is whole.values.V.base is whole.table.U


def test_few_pairs_are_enough_with_a_second_task(context: TrainingContext, second: Path) -> None:
    """With one query a topic, training learns the words of one document; the second task adds their synonyms."""
    recipe = load_recipe("cross-language").override(["dimension=8", "rates=0.1", "triples=400"])
    features = context.features(recipe.model)
    names, queries = context.corpus.query_ids, context.corpus.pairs.queries.tolist()
    chosen = [q for q in queries if names[q].endswith(("-1", "-2"))]
    few = Pairs.from_lists({q: features.pairs[q][:1] for q in chosen})
    features = replace(features, pairs=few)
    task = read_task(context, second, features)
    nothing = replace(task, x=task.x.with_values(task.x.values * 0))
    valid = validation(context.corpus, 0)
    assert valid is not None
    reached = []
    for other in (nothing, task):
        learner = JointLearner(features, recipe.train, np.random.default_rng(1), other)
        for _ in range(6):
            list(learner.steps(0.0, 0.1))
        reached.append(learner.measure(valid))
    assert reached[1] > reached[0] + 0.1


def test_documents_that_are_queries_are_a_second_task(tmp_path: Path) -> None:
    """Descriptions in another language inherit the links; the links themselves regularise V."""
    folder = write_planted_links(tmp_path / "links")
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    ids = [json.loads(line)["_id"] for line in lines]
    foreign = [{"_id": id, "text": f"foreign{id[1]} word"} for id in ids[::3]]
    write_lines(folder / "other" / "queries.jsonl", foreign)
    overrides = ["dimension=4", "epochs=2", "rates=0.03,0.1", "trial=100", f"monolingual={folder}"]
    result = train(
        folder / "other", tmp_path / "out", "x", recipe="cross-language", overrides=overrides,
        reporter=QUIET,
    )  # fmt: skip
    assert result.table[0].measures["map"].mean > 0
    trainer = Trainer(read_collection(folder / "other"), QUIET, tmp_path, "x", 1, 1, False)
    features = trainer.context.features(RECIPE.model)
    task = read_task(trainer.context, folder, features)
    np.testing.assert_array_equal(task.x.csr().toarray(), features.xd.composed().csr().toarray())
    assert task.mates.tolist() == list(range(len(ids)))


def test_an_unusable_second_task_is_refused(
    context: TrainingContext, folder: Path, tmp_path: Path
) -> None:
    features = context.features(RECIPE.model)
    with pytest.raises(TrainingError, match="has other documents than"):
        read_task(context, write_planted(tmp_path / "other", seed=5), features)
    second = write_second(tmp_path / "second", folder)
    (second / "qrels" / "train.tsv").rename(second / "qrels" / "valid.tsv")
    with pytest.raises(TrainingError, match="no judged pair in its split 'train'"):
        read_task(context, second, features)
    write_lines(second / "queries.jsonl", [{"_id": "x", "text": "日本"}])
    (second / "qrels" / "valid.tsv").unlink()
    write_qrels(second / "qrels" / "train.tsv", [("x", "d0-0")])
    plain = context.features(replace(RECIPE.model, trigrams="off"))
    with pytest.raises(TrainingError, match=r"no query .* has a word of the documents"):
        read_task(context, second, plain)


@pytest.mark.parametrize("override", ["loss=softmax", "tied=true", "latent=none"])
def test_a_second_task_needs_two_tables_and_the_margin_loss(override: str) -> None:
    recipe = load_recipe("ssi").override([override])
    with pytest.raises(RecipeError, match=r"train\.monolingual needs"):
        validate(recipe.override(["monolingual=somewhere"]))
    with pytest.raises(RecipeError, match="two vocabularies"):
        validate(recipe.override(["vocabularies=two", "tied=true"]))


SETTINGS = ModelSettings(fields="joined", latent="lsi", dimension=5, match="none")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    folder = write_planted(tmp_path_factory.mktemp("lsi"))
    return build_features(count_collection(read_collection(folder), processes=1), SETTINGS)


def test_the_projection_equals_a_dense_truncated_svd(features: Features) -> None:
    X = features.xd.composed().csr().toarray().astype(np.float64)
    _, values, vt = np.linalg.svd(X, full_matrices=False)
    B = projections.singular_vectors(features, seed=1)
    assert B.shape == (X.shape[1], 5)
    assert B.dtype == np.float32
    # Largest first, each up to its sign.
    np.testing.assert_allclose(np.linalg.norm(X @ B, axis=0), values[:5], rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(B * vt[:5].T, axis=0)), 1, atol=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_lsi_can_be_mixed_with_tfidf(features: Features, alpha: float) -> None:
    """f = α cos(Bᵀq, Bᵀd) + (1 − α) q·d; a word that only queries have projects to zero."""
    mixed = replace(
        features,
        settings=replace(SETTINGS, match="tfidf", alpha=alpha),
        model=replace(
            features.model, sparse=replace(features.model.sparse, scheme="tfidf")
        ),
    )  # fmt: skip
    B = projections.singular_vectors(features, 1)
    model = projections.compile_projection(mixed, B)
    q = encode_judged(mixed, model, np.array([0, 5, 9]))
    xq, xd = (
        features.xq.take(np.array([0, 5, 9])).csr().toarray(),
        features.xd.composed().csr().toarray(),
    )
    place = model.document.words.rows(model.query.words.words)
    known = place >= 0
    assert not known.all()
    remapped = np.zeros((3, xd.shape[1]))
    remapped[:, place[known]] = xq[:, known]
    d = model.encode_documents([{"title": "tell0a", "text": "decoy1 decoy2"}])
    u, v = remapped @ B, d.dense
    cosine = u @ v.T / np.linalg.norm(u, axis=1)[:, None] / np.linalg.norm(v)
    np.testing.assert_allclose(q.dense @ v.T, alpha * cosine, rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(v) == pytest.approx(1, rel=1e-5)
    share = np.linalg.norm(d.sparse.values)
    assert share == pytest.approx(1 - alpha, rel=1e-5, abs=1e-7)


def test_too_many_dimensions_are_refused(features: Features) -> None:
    wide = replace(features, settings=replace(SETTINGS, dimension=36))
    with pytest.raises(TrainingError, match=r"model\.dimension: 36 must be below 36"):
        projections.singular_vectors(wide, 1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("sizes", "skip"), [((), False), ((3,), False), ((3, 5, 3), True)])
def test_arrays_make_the_parameters_again(
    sizes: tuple[int, ...], *, skip: bool, tied: bool
) -> None:
    rng = np.random.default_rng(1)
    U, V = (rng.random((4, 3), np.float32) for _ in range(2))
    query, document = (start_tower(sizes, skip, rng) for _ in range(2))
    D, bias = rng.random((2, 6), np.float32), rng.random(5, np.float32)
    sides = (V, V, D, bias, document, document) if tied else (U, V, D, bias, query, document)
    given = Parameters(*sides)
    found = Parameters.of_arrays(dict(given.arrays()), skip=skip)
    assert found.tied == tied
    assert (found.query is found.document) == tied
    for (name, array), (other, expected) in zip(found.arrays(), given.arrays(), strict=True):
        assert name == other
        assert array is expected
    for tower in (found.query, found.document):
        assert isinstance(tower, Tower)
        assert tower.skip == skip


SMALL = ["dimension=6", "epochs=3", "batch=32", "candidates=30"]


def test_a_learner_is_dropped_before_the_next_one_is_made(tmp_path: Path) -> None:
    numba.set_num_threads(1)
    context = TrainingContext(read_collection(write_planted_links(tmp_path / "c")), QUIET, 1, 1)
    recipe = load_recipe("fielded").override(SMALL)
    valid = validation(context.corpus, 0)
    run = TrainingRun(recipe, valid, 1, "x", QUIET, tmp_path / "0.npz", False, rates=(1e-9, 0.3))
    features = context.features(recipe.model)
    made: list[weakref.ref[LinearLearner]] = []

    def begin(trial: TrainingRun) -> LinearLearner:
        assert all(learner() is None for learner in made)
        learner = rates_learner_of(features, trial.recipe, np.random.default_rng(trial.seed))
        made.append(weakref.ref(learner))
        return learner

    chosen = start_at_best_rate(run, begin)
    assert len(made) == 2
    assert chosen.recipe.train.rate in run.rates
    assert chosen.recipe.train.epochs == 2
    # What goes on is what an epoch at the chosen rate ends with.
    train = replace(chosen.recipe.train, epochs=1)
    once = replace(run, recipe=replace(recipe, train=train), path=tmp_path / "alone.npz")
    alone = begin(once)
    once.learn(alone)
    tables = dict(alone.parameters())
    assert chosen.start is not None
    assert chosen.start.parameters.keys() == tables.keys()
    for name, table in tables.items():
        np.testing.assert_array_equal(chosen.start.parameters[name], table)
    for name, array in alone.state().items():
        np.testing.assert_array_equal(chosen.start.state[name], array)


def test_a_name_gives_the_same_memory_again_and_another_name_other_memory() -> None:
    scratch = Scratch()
    first = scratch.array("scores", 4, 8)
    again = scratch.array("scores", 8, 4)
    assert np.shares_memory(first, again)
    assert again.shape == (8, 4)
    assert again.dtype == np.float32
    assert again.flags.c_contiguous
    assert not np.shares_memory(again, scratch.array("queries", 4, 8))
    assert not np.shares_memory(again, scratch.of("query").array("scores", 4, 8))
    assert scratch.of("query") is scratch.of("query")


def test_a_larger_array_gets_more_memory_and_a_little_to_spare() -> None:
    scratch = Scratch()
    small = scratch.array("scores", 2, 8)
    large = scratch.array("scores", 200, 8)
    assert not np.shares_memory(small, large)
    large[:] = 1
    assert np.shares_memory(large, scratch.array("scores", 210, 8))
