"""U and V that start at word vectors: the geometry of their rows, what keeps its random start, and recipes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear.parameters import Parameters, start
from fullrank_trainer.systems.linear.system import project, start_rows
from fullrank_trainer.train import Trainer, train
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.vectors import WordVectors
from tests.planted import TOPICS, write_planted

QUIET = Reporter(quiet=True)
TRAIN = TrainSettings(loss="softmax", init=0.2)
SETTINGS = ModelSettings(latent="learned", dimension=8)
WORDS = ["ask0a", "ask1b", "decoy1", "decoy7", "shared0", "tell0a", "tell1b", "tell2c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("pretrained"))


def features_of(folder: Path, settings: ModelSettings) -> Features:
    return build_features(count_collection(read_collection(folder), processes=1), settings)


def vectors(width: int, words: list[str] = WORDS) -> WordVectors:
    rng = np.random.default_rng(3)
    table = rng.standard_normal((len(words), width)) * rng.uniform(0.1, 9, (len(words), 1)) + 0.5
    return WordVectors(Path("some.vec"), "00", words, table.astype(np.float32))


def started(
    features: Features, found: WordVectors, train: TrainSettings = TRAIN
) -> tuple[Parameters, Parameters]:
    """The random start, and the same with word vectors."""
    rng = np.random.default_rng(1)
    p = start(features, train, rng)
    plain = p.copy()
    start_rows(found, features, p, train.init, rng)
    return plain, p


def cosines(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows @ rows.T)


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_narrow_vectors_keep_all_their_cosines() -> None:
    """An orthonormal embedding changes no inner product; the mean is removed."""
    table = vectors(5).vectors
    found = project(table, 16, np.random.default_rng(0))
    assert found.shape == (8, 16)
    assert found.dtype == np.float32
    centred = unit(table) - unit(table).mean(axis=0)
    np.testing.assert_allclose(found @ found.T, cosines(centred), atol=1e-6)
    other = project(table, 16, np.random.default_rng(1))
    assert not np.allclose(found, other, atol=0.01)  # the embedding is random
    np.testing.assert_allclose(other @ other.T, cosines(centred), atol=1e-6)


def test_wide_vectors_keep_their_principal_components() -> None:
    """scikit-learn finds the same projection, up to the signs of its components."""
    table = vectors(12, [f"w{i}" for i in range(40)]).vectors
    found = project(table, 4, np.random.default_rng(0))
    wanted = PCA(4, svd_solver="full").fit_transform(unit(table))
    np.testing.assert_allclose(found @ found.T, cosines(wanted), atol=1e-5)
    np.testing.assert_allclose(np.abs(found), np.abs(unit(wanted)), atol=1e-5)


def test_fewer_words_than_dimensions_keep_their_cosines() -> None:
    """Three vectors of 300 numbers span at most three dimensions, fewer than N."""
    table = vectors(300, ["a", "b", "c"]).vectors
    found = project(table, 8, np.random.default_rng(0))
    centred = unit(table) - unit(table).mean(axis=0)
    np.testing.assert_allclose(found @ found.T, cosines(centred), atol=1e-6)


@pytest.mark.parametrize("count", [1, 3])
def test_a_vector_that_is_the_mean_says_nothing(count: int, folder: Path) -> None:
    same = WordVectors(Path("some.vec"), "00", WORDS[:count], np.ones((count, 4), np.float32))
    assert not project(same.vectors, 8, np.random.default_rng(0)).any()
    plain, p = started(features_of(folder, SETTINGS), same)
    np.testing.assert_array_equal(p.U, plain.U)


@pytest.mark.parametrize("width", [3, 8, 50])
@pytest.mark.parametrize("trigrams", ["off", "on"])
def test_only_rows_of_known_words_change(width: int, trigrams: str, folder: Path) -> None:
    """Both sides get the same rows, with the root mean square of random ones; trigrams keep their start."""
    features = features_of(folder, replace(SETTINGS, trigrams=trigrams))
    plain, p = started(features, vectors(width))
    seen: dict[str, np.ndarray] = {}
    for side, labels in (
        ("U", features.query_composition.labels),
        ("V", features.document_composition.labels),
    ):
        table, before = getattr(p, side), getattr(plain, side)
        assert len(table) > len(labels) or trigrams == "off"
        changed = np.flatnonzero((table != before).any(axis=1)).tolist()
        assert changed == [i for i, word in enumerate(labels) if word in WORDS]
        assert changed
        np.testing.assert_allclose(np.sqrt(np.square(table[changed]).mean(axis=1)), 0.2, rtol=1e-5)
        for i in changed:
            np.testing.assert_array_equal(seen.setdefault(labels[i], table[i]), table[i])
    assert {"ask0a", "tell0a"} <= seen.keys()
    assert (p.D == plain.D).all()


def test_a_uniform_start_gives_its_own_deviation(folder: Path) -> None:
    features = features_of(folder, SETTINGS)
    plain, p = started(features, vectors(5), replace(TRAIN, init=0.0))
    changed = (p.V != plain.V).any(axis=1)
    deviation = np.sqrt(np.square(p.V[changed]).mean(axis=1))
    np.testing.assert_allclose(deviation, plain.V.std(), rtol=1e-5)


def test_a_tied_table_changes_once(folder: Path) -> None:
    plain, p = started(features_of(folder, replace(SETTINGS, tied=True)), vectors(5))
    assert p.U is p.V
    assert (p.U != plain.U).any(axis=1).sum() == len(WORDS)


@pytest.mark.parametrize("hashing", ["all", "rare"])
def test_rows_of_frequent_words_start_at_their_vectors(hashing: str, folder: Path) -> None:
    """A hashed word is composed of the rows of frequent words; a second table keeps its start."""
    settings = replace(SETTINGS, hashing=hashing, bins=2, bin_words=30)
    features = features_of(folder, settings)
    labels = list(features.query_composition.labels)
    assert len(labels) == (30 if hashing == "all" else 60)
    plain, p = started(features, vectors(5))
    changed = np.flatnonzero((p.U != plain.U).any(axis=1)).tolist()
    assert changed == [i for i, label in enumerate(labels) if label in WORDS]
    assert changed


def write_vectors(path: Path, by_word: Mapping[str, np.ndarray]) -> Path:
    lines = [f"{word} {' '.join(map(str, row.tolist()))}" for word, row in by_word.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def meanings() -> dict[str, np.ndarray]:
    """Vectors by which the words of a topic are alike on both sides; decoys have none."""
    rng = np.random.default_rng(5)
    found = {}
    for topic in range(TOPICS):
        direction = rng.standard_normal(20)
        for letter in "abcd":
            found[f"ask{topic}{letter}"] = direction + rng.standard_normal(20) / 10
            found[f"tell{topic}{letter}"] = direction + rng.standard_normal(20) / 10
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vectors(tmp_path_factory.mktemp("vectors") / "planted.vec", meanings())


def fitted(folder: Path, recipe: Recipe, path: Path) -> tuple[float, dict[str, object]]:
    """MAP on validation and the facts of the model card."""
    trainer = Trainer(read_collection(folder), QUIET, path, "x", seed=1, threads=1, resume=False)
    candidate = trainer.search(recipe)
    assert candidate.row is not None
    return candidate.row.measures["map"].mean, candidate.fitted.facts


@pytest.mark.parametrize("name", ["ssi", "fielded"])
def test_vectors_of_meanings_rank_before_any_training(
    name: str, folder: Path, file: Path, tmp_path: Path
) -> None:
    """Half of the queries share no word with their documents; at rate 0 only the start can relate them."""
    still = ["dimension=16", "epochs=1", "match=none", "fields=joined", "diagonal=identity"]
    still += ["rates=0"] if name == "ssi" else ["rate=0", "bias=false", "phrases=false"]
    recipe = load_recipe(name).override(still)
    without, plain = fitted(folder, recipe, tmp_path)
    with_vectors, facts = fitted(folder, recipe.override([f"vectors={file}"]), tmp_path)
    assert with_vectors > 0.9 > without + 0.2
    assert "vectors" not in plain
    assert facts["vectors"] == {
        "file": "planted.vec", "sha256": facts["vectors"]["sha256"],  # type: ignore[index]
        "width": 20, "words": 48, "of": 48 + 24 + 6 + 36,
    }  # fmt: skip


def test_every_member_starts_at_the_vectors(folder: Path, file: Path, tmp_path: Path) -> None:
    recipe = load_recipe("ssi").override(
        ["dimension=16", "epochs=1", "rates=0", "match=none", "members=2", f"vectors={file}"]
    )
    ranked, facts = fitted(folder, recipe, tmp_path)
    assert ranked > 0.9
    assert len(facts["members"]) == 2  # type: ignore[arg-type]
    assert facts["vectors"]["words"] == 48  # type: ignore[index]


def test_the_found_words_are_logged_and_in_the_card(
    folder: Path, file: Path, tmp_path: Path
) -> None:
    stream = io.StringIO()
    result = train(
        folder, tmp_path, "x", recipe="ssi", threads=1, reporter=Reporter(stream, as_json=True),
        overrides=["dimension=4", "epochs=1", "rates=0.1", f"vectors={file}"],
    )  # fmt: skip
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    (logged,) = [event for event in events if event["event"] == "vectors"]
    card = open_bundle(result.path).card
    assert card["training"]["vectors"].items() <= logged.items()
    assert (logged["words"], logged["file"]) == (48, "planted.vec")
    assert card["recipe"]["train"]["vectors"] == str(file)


def test_other_vectors_cannot_resume_a_run(folder: Path, tmp_path: Path) -> None:
    """The same path with other content is another run."""
    path = write_vectors(tmp_path / "a.vec", meanings())
    recipe = load_recipe("ssi").override(
        ["dimension=4", "epochs=2", "rates=0.1", f"vectors={path}"]
    )
    collection = read_collection(folder)

    def fit(resume: bool) -> None:
        run = TrainingRun(recipe, None, 1, "data", QUIET, tmp_path / "0.npz", resume)
        TrainingContext(collection, QUIET, 1, 1).fit(recipe, run)

    fit(False)
    fit(True)
    write_vectors(path, {word: -2 * row for word, row in meanings().items()})
    with pytest.raises(TrainingError, match="another recipe, seed or collection"):
        fit(True)


def test_the_parts_of_a_mix_start_at_its_vectors(folder: Path, file: Path, tmp_path: Path) -> None:
    parts = "ssi dimension=16 epochs=1 rates=0 match=none;word-translation epochs=2"
    mix = load_recipe("cross-language-mixed").override(
        [f"mixed.recipes={parts}", "trials=", "alpha=1", f"train.vectors={file}"]
    )
    ranked, facts = fitted(folder, mix, tmp_path)
    assert ranked > 0.9
    assert facts["parts"][0]["vectors"]["words"] == 48  # type: ignore[index]


@pytest.mark.parametrize(
    "recipe",
    ["bm25", "ssi trigrams=only", "htr", "word-translation", "lsi",
     "cross-language-mixed mixed.recipes=tfidf;bm25"],
)  # fmt: skip
def test_recipes_without_rows_of_words_are_refused(recipe: str, file: Path) -> None:
    name, *overrides = recipe.split()
    linear = r"train\.vectors needs a linear recipe"
    mixed = r"no part of mixed\.recipes can start at word vectors"
    with pytest.raises(RecipeError, match=mixed if "mixed" in name else linear):
        validate(load_recipe(name).override([f"train.vectors={file}", *overrides]))


def test_a_missing_file_is_refused_before_the_collection_is_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"train\.vectors: there is no file .*nothing\.vec"):
        train(
            tmp_path / "nowhere", tmp_path, "x", recipe="ssi", reporter=QUIET,
            overrides=[f"vectors={tmp_path / 'nothing.vec'}"],
        )  # fmt: skip


def test_vectors_of_words_without_rows_are_refused(folder: Path) -> None:
    """A word of a test query alone is a word of the collection but has no row."""
    with pytest.raises(TrainingError, match=r"some\.vec has a vector for no word of the model's"):
        started(features_of(folder, SETTINGS), vectors(5, ["elk"]))


def test_vectors_of_no_known_word_are_refused(folder: Path, tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "other.vec", {"elk": np.ones(3)})
    recipe = load_recipe("ssi").override([f"vectors={path}"])
    with pytest.raises(TrainingError, match=r"other\.vec has a vector for no word"):
        fitted(folder, recipe, tmp_path)
