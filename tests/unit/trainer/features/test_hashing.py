"""What hashing counts over a collection, and the features that come of it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import RecipeError
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.composition import find_neighbours, training_frequency, with_bigrams
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import build_features
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear.margin import MarginLearner
from fullrank_trainer.systems.linear.system import FACTORS, mix
from fullrank_trainer.training.validation import Validation, validation
from tests.planted import write_lines, write_planted, write_planted_links, write_qrels

QUIET = Reporter(quiet=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    documents = [
        {"_id": "a", "title": "star trek", "text": "Spock flies. A star ship flies"},
        {"_id": "b", "title": "star trek", "text": "the ship\nthe star trek ship"},
        {"_id": "c", "title": "black hole", "text": "the black hole"},
    ]
    queries = [
        {"_id": "q", "text": "vulcan star trek"},
        {"_id": "p", "text": "black hole hole"},
        {"_id": "t", "text": "black hole sun"},
    ]
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_lines(tmp_path / "queries.jsonl", queries)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q", "a"), ("p", "c")])
    write_qrels(tmp_path / "qrels" / "test.tsv", [("t", "c")])
    return count_collection(read_collection(tmp_path), processes=1)


def test_training_texts_are_documents_and_training_queries(corpus: Corpus) -> None:
    df = dict(zip(corpus.counts.words, training_frequency(corpus).tolist(), strict=True))
    assert df["star"] == 3
    assert df["vulcan"] == 1
    assert df["sun"] == 0
    assert len(corpus.training_texts()) == 5


def test_bigrams_are_counted_in_texts_not_in_fields(corpus: Corpus) -> None:
    """Title and text of a document are one text, but no 2-gram spans both."""
    found = with_bigrams(corpus, 2, QUIET)
    assert [w for w in found.counts.words if " " in w] == ["black hole", "star trek"]
    assert with_bigrams(corpus, 2, QUIET) is found
    assert with_bigrams(corpus, 0, QUIET) is corpus
    column = found.counts.words.index("star trek")
    assert found.documents.csr()[:, [column]].toarray().ravel().tolist() == [1, 2, 0]


def test_words_that_only_queries_have_get_neighbours(corpus: Corpus) -> None:
    settings = ModelSettings(latent="learned", hashing="all", bin_words=4, bins=2)
    near = find_neighbours(with_bigrams(corpus, 2, QUIET), settings, QUIET)
    assert near.bins == ["star", "trek", "black", "hole"]
    names = [[near.bins[j] for j in near.places[near.index[w]] if j >= 0] for w in near.index]
    found = dict(zip(near.index, names, strict=True))
    assert found["vulcan"] == ["star", "trek"]
    assert found["star trek"] == ["star", "trek"]
    assert found["black hole"] == ["black", "hole"]
    assert found["sun"] == []


def test_bigrams_are_not_in_the_lexical_part(corpus: Corpus) -> None:
    """ "star" and "star trek" are two features of φ, but the identity is over words and lengths count words."""
    plain = build_features(corpus, ModelSettings(latent="learned", match="bm25"))
    both = build_features(corpus, ModelSettings(latent="learned", match="bm25", bigrams=2))
    assert both.model.sparse.words.words == plain.model.sparse.words.words
    assert both.model.sparse.mean_lengths == plain.model.sparse.mean_lengths
    np.testing.assert_array_equal(both.s.csr().toarray(), plain.s.csr().toarray())
    for mine, theirs in zip(both.z, plain.z, strict=True):
        np.testing.assert_array_equal(mine.csr().toarray(), theirs.csr().toarray())
    assert both.xd.width == plain.xd.width + 2
    limited = build_features(
        corpus, ModelSettings(latent="learned", latent_words=3, bigrams=2, hashing="rare", bins=2)
    )
    assert len(limited.model.query.words) == 5
    assert limited.model.settings["ngrams"] == 2


def test_counting_shows_its_progress(tmp_path: Path) -> None:
    """Progress has the stages, with at most one line every few seconds if the output is no terminal."""
    corpus = count_collection(read_collection(write_planted(tmp_path)), processes=1)
    report = Reporter(io.StringIO())
    settings = ModelSettings(latent="learned", hashing="rare", bigrams=2, bins=5, bin_words=50)
    features = build_features(corpus, settings, report)
    assert features.xq.width == features.xd.width == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["latent=none", "loss=none", "hashing=all"], "latent = learned"),
        (["bigrams=5", "latent=lsi"], "latent = learned"),
        (["bigrams=5", "buckets=5"], "buckets"),
        (["hashing=some"], "model.hashing"),
        (["bins=0"], "model.bins"),
    ],
)
def test_hashing_settings_that_do_not_go_together_are_refused(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(load_recipe("ssi").override(overrides))


def learner_of(folder: Path, *, tied: bool) -> tuple[MarginLearner, Validation]:
    """Two tables with random rows, not trained."""
    write = write_planted_links if tied else write_planted
    corpus = count_collection(read_collection(write(folder)), processes=1)
    settings = ModelSettings(
        latent="learned", hashing="rare", bin_words=60, dimension=6, tied=tied, match="none"
    )
    features = build_features(corpus, settings)
    train = TrainSettings(loss="margin", init=0.1)
    valid = validation(corpus, 0)
    assert valid is not None
    return MarginLearner(features, train, np.random.default_rng(4)), valid


@pytest.mark.parametrize("tied", [False, True])
def test_the_factor_of_a_mix_is_the_best_on_validation(tmp_path: Path, tied: bool) -> None:
    """The factor scales the second table only; without validation nothing changes."""
    learner, valid = learner_of(tmp_path, tied=tied)
    second = learner.features.query_composition.second_table
    before = learner.values.copy()
    assert mix(learner, None) == 1
    np.testing.assert_array_equal(learner.values.U, before.U)
    factor = mix(learner, valid)
    reached = learner.measure(valid)
    scores = {}
    for other in FACTORS:
        for table, fitted in ((learner.values.U, before.U), (learner.values.V, before.V)):
            table[second] = fitted[second] * np.float32(other)
        scores[other] = learner.measure(valid)
    assert reached == max(scores.values())
    assert factor == min(c for c, score in scores.items() if score == reached)
    assert len(set(scores.values())) > 1
    np.testing.assert_array_equal(learner.values.U[: second.start], before.U[: second.start])


def test_only_the_linear_system_hashes() -> None:
    with pytest.raises(RecipeError, match="need a linear"):
        validate(load_recipe("htr").override(["hashing=all"]))
