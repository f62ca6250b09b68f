"""What hashing counts over a collection, the features and compositions that come of it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import RecipeError
from fullrank.models.linear import DenseSide
from fullrank.progress import Reporter
from fullrank.storage.encoding import Rows
from fullrank.text.features import Vocabulary
from fullrank.text.words import words
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features import composition as bigrams
from fullrank_trainer.features.composition import (
    Composition,
    Neighbours,
    find_neighbours,
    frequent_bigrams,
    hashed,
    mixed,
    most_frequent,
    nearest,
    training_frequency,
    with_bigrams,
)
from fullrank_trainer.features.corpus import Corpus, blocks_of, count_collection, stack_in_memory
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


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("ssi", "latent=none loss=none hashing=all", "latent = learned"),
        ("ssi", "bigrams=5 latent=lsi", "latent = learned"),
        ("ssi", "bigrams=5 buckets=5", "buckets"),
        ("ssi", "hashing=some", "model.hashing"),
        ("ssi", "bins=0", "model.bins"),
        ("htr", "hashing=all", "need a linear"),
    ],
)
def test_hashing_settings_that_do_not_go_together_are_refused(
    recipe: str, overrides: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(load_recipe(recipe).override(overrides.split()))


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


WORDS = ["ant", "bee", "cat", "dog", "eel"]
UNSEEN = ["ants", "zzz"]
# cat and ant are frequent; dog has one neighbour only, eel was never counted.
NEAR = Neighbours(
    ["cat", "ant", "fox"],
    {"ant": 0, "bee": 1, "cat": 2, "dog": 3},
    np.array([[1, 0], [0, 2], [0, 1], [1, -1]], np.int32),
)
COMPOSITIONS = {
    "own": Composition(WORDS, None),
    "hashed": hashed(WORDS, NEAR),
    "mixed": mixed(WORDS, NEAR),
}


def side(trigrams: list[str]) -> DenseSide:
    return DenseSide(
        Vocabulary(WORDS),
        np.ones(len(WORDS) + 1, np.float32),
        np.zeros((len(WORDS), 0), np.float32),
        Vocabulary(trigrams),
        np.zeros((len(trigrams), 0), np.float32),
    )


def texts(columns: int) -> Rows:
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((20, columns)) < 0.4, rng.random((20, columns)), 0)
    dense[[0, 9]] = 0
    return Rows.from_csr(sp.csr_array(dense.astype(np.float32)))


@pytest.mark.parametrize("trigrams", [[], ["#an", "ant", "nt#", "ts#"]], ids=["words", "trigrams"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_training_and_serving_make_the_same_vectors(name: str, trigrams: list[str]) -> None:
    made, plain = COMPOSITIONS[name], side(trigrams)
    unseen = UNSEEN if trigrams else []
    x = texts(len(WORDS) + len(unseen))
    trained = made.composer(plain, unseen)(x)
    assert trained.width == len(made.labels) + len(trigrams)
    table = np.random.default_rng(1).standard_normal((trained.width, 4)).astype(np.float32)
    folded = made.fold(plain, table)
    served = x.csr()[:, : len(WORDS)] @ folded.table
    if unseen:
        served = served + x.csr()[:, len(WORDS) :] @ folded.rows_for(unseen)
    np.testing.assert_allclose(trained.csr() @ table, served, rtol=1e-5, atol=1e-6)
    assert folded.table.dtype == np.float32
    assert folded.table.flags.c_contiguous


def test_hashed_words_are_composed_of_their_bins() -> None:
    """The outer product of sums: (1/k)(Σ_p a_p)(Σ_p b_p)ᵀ, so each side has 1/√k of each of its k rows."""
    matrix = COMPOSITIONS["hashed"].words
    assert matrix is not None
    wanted = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(matrix.toarray(), wanted, rtol=1e-6)
    assert COMPOSITIONS["hashed"].labels == NEAR.bins


def test_frequent_words_keep_their_own_row_in_a_mix() -> None:
    made = COMPOSITIONS["mixed"]
    assert made.words is not None
    own, like = made.words.toarray()[:, :3], made.words.toarray()[:, 3:]
    np.testing.assert_array_equal(own, [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    wanted = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(like, wanted, rtol=1e-6)
    assert len(set(made.labels)) == 6
    assert made.second_table == slice(3, 6)


def test_own_rows_do_not_change_texts() -> None:
    x = texts(len(WORDS))
    made: Composition = Composition(WORDS, None)
    assert made.composer(side([]), [])(x) is x


def bigrams_texts() -> list[str]:
    rng = np.random.default_rng(3)
    letters = np.array(list("abcdefg"))
    lines = [" ".join(rng.choice(letters, rng.integers(0, 9))) for _ in range(80)]
    return ["", "a", "a b\nb a", *("\n".join(lines[i : i + 2]) for i in range(0, 80, 2))]


def brute(least: int, without: str = "") -> list[str]:
    found: Counter[str] = Counter()
    for text in bigrams_texts():
        lines = [words(line) for line in text.split("\n")]
        found.update({f"{a} {b}" for line in lines for a, b in pairwise(line)})
    return sorted(p for p, n in found.items() if n >= least and not set(p.split()) & set(without))


@pytest.mark.parametrize("least", [1, 3, 7, 100])
def test_frequent_bigrams_are_those_of_a_plain_count(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on how often the buffer is merged."""
    numbers = {letter: i for i, letter in enumerate("gfedcba")}
    done: list[int] = []
    assert frequent_bigrams(bigrams_texts(), numbers, least, progress=done.append) == brute(least)
    assert sum(done) == len(bigrams_texts())
    monkeypatch.setattr(bigrams, "_BUFFER", 1)
    assert frequent_bigrams(bigrams_texts(), numbers, least) == brute(least)


def test_unknown_words_make_no_bigrams() -> None:
    """No 2-gram spans an unknown word."""
    numbers = {letter: i for i, letter in enumerate("acdefg")}
    assert frequent_bigrams(bigrams_texts(), numbers, 1) == brute(1, without="b")
    assert frequent_bigrams(["a b c"], numbers, 1) == []
    assert frequent_bigrams([], numbers, 1) == []


def test_the_rarest_bigrams_are_dropped_to_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """2-grams that are frequent early are kept."""
    monkeypatch.setattr(bigrams, "_MAX_BIGRAMS", 5)
    monkeypatch.setattr(bigrams, "_BUFFER", 4)
    numbers = {f"w{i}": i for i in range(60)}
    many = [f"w1 w2 w3 w{i} w{i + 1}" for i in range(4, 50)]
    found = frequent_bigrams(many, numbers, 40)
    assert found == ["w1 w2", "w2 w3"]


SIZES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=20)


def rows_of(sizes: list[int]) -> Rows:
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(indptr[-1])
    return Rows(indptr, np.arange(count, dtype=np.int32), np.ones(count, np.float32), count)


@given(SIZES, st.integers(1, 15))
def test_blocks_are_all_rows_and_small(sizes: list[tuple[int, int]], most: int) -> None:
    columns = [rows_of([size[c] for size in sizes]) for c in range(2)]
    blocks = [*blocks_of(columns, most)]
    for c, column in enumerate(columns):
        found = stack_in_memory([block[c] for block in blocks])
        for mine, other in zip(found.arrays, column.arrays, strict=True):
            np.testing.assert_array_equal(mine, other)
    for first, second in blocks:
        assert len(first) == len(second)
        entries = len(first.indices) + len(second.indices)
        assert entries <= most or len(first) == 1


CONTEXTS, DICE_WORDS = 60, 25


def contexts() -> Rows:
    """Sixty contexts: the first is empty, word 0 occurs in none, word 1 in all others, word 2 in one."""
    rng = np.random.default_rng(5)
    held = rng.random((CONTEXTS, DICE_WORDS)) < rng.random(DICE_WORDS) * 0.4
    held[0], held[1:, 1], held[:, 0], held[:, 2] = False, True, False, False
    held[7, 2] = True
    counts: Any = held * rng.integers(1, 9, held.shape).astype(np.float32)
    return Rows.from_csr(sp.csr_array(counts))


def dice_brute(rows: Rows, frequent: list[int], word: int, k: int) -> tuple[list[int], list[float]]:
    """Every coefficient as a fraction, sorted."""
    dense = rows.csr().toarray() > 0
    holding = [set(np.flatnonzero(column).tolist()) for column in dense.T]
    found = [
        (-Fraction(2 * len(both), len(holding[word]) + len(holding[j])), place)
        for place, j in enumerate(frequent)
        if (both := holding[word] & holding[j])
    ]
    found.sort()
    places = [place for _, place in found[:k]] + [-1] * (k - len(found[:k]))
    return places, [float(-dice) for dice, _ in found[:k]] + [0.0] * (k - len(found[:k]))


@pytest.mark.parametrize("k", [1, 5, 40])
def test_nearest_words_equal_brute_force(k: int) -> None:
    """Any number of threads, with words of no context and of a single one."""
    rows = contexts()
    occur = np.bincount(rows.indices, minlength=DICE_WORDS)
    frequent, wanted = most_frequent(occur, 12), np.arange(DICE_WORDS)
    assert frequent[0] == 1
    assert 0 not in frequent
    before = numba.get_num_threads()
    for threads in (1, before):
        numba.set_num_threads(threads)
        places, scores = nearest(rows, frequent, wanted, k)
        for word in range(DICE_WORDS):
            expected = dice_brute(rows, frequent.tolist(), word, k)
            assert (places[word].tolist(), scores[word].tolist()) == expected, word
    numba.set_num_threads(before)
    assert (places[frequent, 0] == np.arange(len(frequent))).all()
    assert (places[0] == -1).all()


def test_ties_go_to_the_more_frequent_and_then_to_the_first_word() -> None:
    occur = np.array([2, 5, 2, 0, 5])
    assert most_frequent(occur, 3).tolist() == [1, 4, 0]
    assert most_frequent(occur, 9).tolist() == [1, 4, 0, 2]
    alike = Rows.from_csr(sp.csr_array(np.ones((3, 4), np.float32)))
    places, scores = nearest(alike, np.array([2, 0, 1]), np.array([3]), 3)
    assert places.tolist() == [[0, 1, 2]]
    assert (scores == 1).all()


GIVEN = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 50), max_size=4), max_size=8)
Given = dict[int, list[int]]


def lists(given: Given) -> Pairs:
    return Pairs.from_lists({row: np.array(found, np.int64) for row, found in given.items()})


def plain(found: Pairs) -> list[tuple[int, list[int]]]:
    return [(row, entries.tolist()) for row, entries in found.items()]


@given(GIVEN, st.lists(st.integers(0, 12), max_size=6, unique=True))
def test_rows_have_their_lists_in_their_order(given: Given, asked: list[int]) -> None:
    found, rows = lists(given), np.array(asked, np.int64)
    assert plain(found) == [*given.items()]
    assert found.sizes.tolist() == [len(row) for row in given.values()]
    assert found.owners.tolist() == [row for row, entries in given.items() for _ in entries]
    assert [row in found for row in range(13)] == [row in given for row in range(13)]
    known = found.having(rows)
    assert known.tolist() == [row for row in asked if row in given]
    assert plain(found.of_queries(known)) == [(row, given[row]) for row in known.tolist()]


@given(GIVEN, st.data())
def test_lists_of_some_rows_follow_each_other(given: Given, data: st.DataObject) -> None:
    asked = data.draw(st.permutations([*given]))
    starts, entries = lists(given).take(np.array(asked, np.int64))
    assert starts.tolist() == np.cumsum([0, *(len(given[row]) for row in asked)]).tolist()
    assert entries.tolist() == [x for row in asked for x in given[row]]


@given(GIVEN)
def test_entries_are_kept_and_empty_lists_are_not(given: Given) -> None:
    found = lists(given)
    kept = (found.entries + found.owners) % 2 == 0
    chosen = {row: [x for x in entries if (x + row) % 2 == 0] for row, entries in given.items()}
    assert plain(found.where(kept)) == [(row, x) for row, x in chosen.items() if x]


@given(GIVEN, GIVEN)
def test_queries_that_have_no_pair_join_after_the_others(given: Given, more: Given) -> None:
    new = [(row, x) for row, x in more.items() if x and row not in given]
    assert plain(lists(given).with_queries_of(lists(more))) == [*given.items(), *new]


@given(GIVEN)
def test_documents_ascend(given: Given) -> None:
    assert plain(lists(given).ascending()) == [(row, sorted(x)) for row, x in given.items()]


@given(GIVEN, st.data())
def test_values_of_some_pairs_stand_at_their_places(given: Given, data: st.DataObject) -> None:
    pairs = lists({row: sorted({*found}) for row, found in given.items()})
    kept = np.array([data.draw(st.booleans()) for _ in range(len(pairs))], np.bool_)
    values = np.arange(1.0, 1 + np.count_nonzero(kept))
    wanted = np.zeros(len(pairs))
    wanted[kept] = values
    assert pairs.aligned(pairs.where(kept), values).tolist() == wanted.tolist()


def test_rows_without_a_list_are_missed() -> None:
    found = lists({4: [1, 2], 1: []})
    assert 2 not in found
    for rows in ([4, 2], [11]):
        with pytest.raises(KeyError, match=str(rows[-1])):
            found.take(np.array(rows))
    with pytest.raises(KeyError, match="2"):
        found[2]


PAIRS = Pairs.from_lists(
    {1: np.array([0, 2]), 4: np.array([5]), 6: np.array([2, 7])},
    weights=np.array([1, 2, 1, 1, 2], np.float32),
    people=np.array([2, 1, 0, 1, 3]),
    passed_over=Pairs.from_lists({4: np.array([0, 7])}),
)


def test_some_queries_keep_their_own_judgements() -> None:
    found = PAIRS.of_queries(np.array([1, 4]))
    assert found.queries.tolist() == [1, 4]
    assert {row: kept.tolist() for row, kept in found.items()} == {1: [0, 2], 4: [5]}
    assert found.weights is not None
    assert found.shared is not None
    assert found.weights.tolist() == [1, 2, 1]
    assert found.shared[found.slice_of(1)].tolist() == [True, False]
    assert found.passed_over is not None
    assert found.passed_over.rows.tolist() == [4]
    assert len(found) == 3


def test_the_documents_of_other_queries_stay_judged() -> None:
    for pairs in (
        PAIRS.of_queries(np.array([4])),
        PAIRS.of_queries(np.array([1, 4])).of_queries(np.array([1])),
    ):
        assert pairs.documents.tolist() == [0, 2, 5, 7]


def test_pairs_without_weights_stay_without() -> None:
    unweighted = Pairs.from_lists({0: np.array([1]), 1: np.array([0])})
    found = unweighted.of_queries(np.array([1]))
    assert (found.weights, found.shared) == (None, None)


def test_queries_of_another_split_join_with_no_larger_weights_than_there_are() -> None:
    other = Pairs.from_lists(
        {2: np.array([3, 9]), 4: np.array([8])},
        weights=np.array([0.7, 6, 1], np.float32),
        people=np.array([1, 2, 2]),
        passed_over=Pairs.from_lists({2: np.array([1]), 4: np.array([2])}),
    )
    found = PAIRS.with_queries_of(other)
    assert found.queries.tolist() == [1, 2, 4, 6]
    # Query 4 keeps its own judgement.
    assert {row: kept.tolist() for row, kept in found.items()} == {
        1: [0, 2], 2: [3, 9], 4: [5], 6: [2, 7]
    }  # fmt: skip
    assert found.weights is not None
    assert found.shared is not None
    assert found.weights[found.slice_of(2)].tolist() == pytest.approx([0.7, 2])
    assert found.weights[found.slice_of(6)].tolist() == [1, 2]
    assert found.shared[found.slice_of(2)].tolist() == [False, True]
    assert found.passed_over is not None
    assert dict(plain(found.passed_over)) == {2: [1], 4: [0, 7]}
    assert found.documents.tolist() == [0, 2, 3, 5, 7, 9]


def test_queries_without_weights_join_with_a_weight_of_one() -> None:
    other = Pairs.from_lists({2: np.array([3, 9])})
    found = PAIRS.with_queries_of(other)
    assert found.weights is not None
    assert found.shared is not None
    assert (
        found.weights[found.slice_of(2)].tolist(),
        found.shared[found.slice_of(2)].tolist(),
    ) == ([1, 1], [True, True])
    unweighted = Pairs.from_lists({0: np.array([1])}).with_queries_of(other)
    assert (unweighted.weights, unweighted.shared) == (None, None)
