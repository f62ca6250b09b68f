"""The linear family by hand: small models whose scores can be computed on paper, towers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError
from fullrank.models.contract import Parts
from fullrank.models.linear import KIND, DenseSide, LinearModel, SparseSide
from fullrank.models.linear.sides import Tower
from fullrank.models.registry import load_model
from fullrank.retrieval import Retriever
from fullrank.text.features import Vocabulary, count_corpus
from fullrank.text.phrases import Phrases

SETTINGS: dict[str, Any] = {
    "fields": [["title", ["title"]], ["text", ["text", "more"]]],
    "field_weights": [1.0, 1.0],
    "query_fields": ["title", "text"],
    "phrase_field": "title",
    "unit": False,
    "dense_scale": 1.0,
    "bias": 0.25,
}


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def model(**changes: Any) -> LinearModel:
    """Words a, b, c of documents; q is a query's word. idf all one, D by field."""
    U, V = f32([1, 0], [0, 1], [0, 2], [3, 0]), f32([1, 0], [0, 1], [0, 2])
    dense = {
        "query": DenseSide(Vocabulary(["a", "b", "c", "q"]), f32(1, 1, 1, 1, 1), U),
        "document": DenseSide(Vocabulary(["a", "b", "c"]), f32(1, 1, 1, 1), V),
    }
    sparse = SparseSide(
        Vocabulary(["a", "b", "c"]),
        f32(1, 1, 1),
        f32([1, 2, 3], [10, 20, 30]),
        Phrases(["a b"]),
        f32(100),
        "bm25",
        k1=1.0,
        b=0.0,
        k3=1.0,
        mean_lengths=(1.0, 1.0),
    )
    settings = {**SETTINGS, **changes.pop("settings", {})}
    dense |= {name: changes.pop(name) for name in ("query", "document") if name in changes}
    return LinearModel(settings, dense["query"], dense["document"], replace(sparse, **changes))


def test_scores_equal_those_computed_by_hand() -> None:
    """q a → u = (U_q + U_a)/√2; title b: z = 1 · 2/(1 + 1) = 1, weighed 2 in the title."""
    found = model()
    u = found.encode_queries(["q A"])
    np.testing.assert_allclose(u.dense, [[4 / np.sqrt(2), 0]], rtol=1e-6)
    assert (u.sparse.indices.tolist(), u.sparse.values.tolist()) == ([0], [1.0])
    d = found.encode_documents([{"title": "b", "text": "a", "more": "a"}])
    # Two fields' unit vectors, each of one word, added and made a unit again.
    np.testing.assert_allclose(d.dense, [[1 / np.sqrt(2), 1 / np.sqrt(2)]], rtol=1e-6)
    # Title b: D 2 · 1; text "a a": D 10 · 2·2/(2 + 1).
    np.testing.assert_allclose(d.sparse.csr().toarray(), [[40 / 3, 2, 0, 0]], rtol=1e-6)
    assert d.bias.tolist() == [0.25]
    ranking = Retriever(d).search(u, 1)[0]
    assert ranking.scores[0] == pytest.approx(2 + 40 / 3 + 0.25, rel=1e-6)


def test_a_phrase_matches_whole_titles_only() -> None:
    found = model()
    d = found.encode_documents([{"title": "A, b"}, {"title": "b a"}, {"text": "a b"}])
    phrase = d.sparse.csr().toarray()[:, 3]
    assert phrase.tolist() == [100, 0, 0]
    s = found.encode_queries(["b a b a b", "a", "b a"]).sparse.csr().toarray()[:, 3]
    np.testing.assert_allclose(s, [2 * 2 / 3, 0, 0], rtol=1e-6)  # k3 = 1: 2 tf / (tf + 1)


def test_repeated_query_words_saturate() -> None:
    for k3, wanted in ((0.0, 1.0), (1.0, 1.5), (float("inf"), 3.0)):
        found = model(k3=k3).encode_queries(["a a a"])
        assert found.sparse.values.tolist() == [wanted]


def test_queries_keep_their_top_words() -> None:
    """The lexical part keeps the words of the largest weight times idf, with unchanged weights."""
    found = model(terms=1, idf=f32(1, 5, 2)).encode_queries(["a c b", "a a c", "c"])
    assert found.sparse.indices.tolist() == [1, 2, 2]
    np.testing.assert_allclose(found.sparse.values, 1.0, rtol=1e-6)
    query = replace(model().query, terms=1, idf=f32(1, 1, 1, 9, 1))
    np.testing.assert_allclose(model(query=query).encode_queries(["a b q"]).dense, [[3, 0]])


def test_unit_length_and_scale_apply_to_dense_vectors() -> None:
    found = model(settings={"unit": True, "dense_scale": 0.5})
    np.testing.assert_allclose(
        found.encode_queries(["q", "c", ""]).dense, f32([0.5, 0], [0, 0.5], [0, 0])
    )
    np.testing.assert_allclose(found.encode_documents([{"text": "c"}]).dense, [[0, 1]])


def test_unknown_words_get_the_vectors_of_their_trigrams() -> None:
    """#xy# has #xy and xy#; one is known: U_xy = (1, 1)/√2. Without trigrams the word is ignored."""
    query = replace(model().query, trigrams=Vocabulary(["#xy"]), trigram_table=f32([1, 1]))
    found = model(query=query)
    np.testing.assert_allclose(found.encode_queries(["xy"]).dense, [[0.5**0.5] * 2], rtol=1e-6)
    assert model().encode_queries(["xy"]).dense.tolist() == [[0, 0]]
    # The unseen word counts in the norm too.
    both = (np.array([1, 0]) + np.array([1, 1]) / np.sqrt(2)) / np.sqrt(2)
    np.testing.assert_allclose(found.encode_queries(["a xy"]).dense, [both], rtol=1e-6)


def test_unknown_words_share_their_hash_bucket() -> None:
    words = Vocabulary(["a", "b", "c"], buckets=1)
    hashed = model(
        words=words,
        idf=f32(1, 1, 1, 1),
        D=f32([1, 2, 3, 7], [1, 1, 1, 1]),
        phrases=Phrases([]),
        P=f32(),
    )
    assert hashed.n_sparse == 4
    assert hashed.encode_documents([{"title": "zebra"}]).sparse.csr().toarray().tolist() == [
        [0, 0, 0, 7]
    ]
    s = hashed.encode_queries(["zebra yak a"])
    assert s.sparse.indices.tolist() == [0, 3]
    # Two words of one bucket are one feature that occurs twice; each term has half of it.
    terms = {term.term: term.weight for term in hashed.query_terms("zebra yak a")}
    assert terms["zebra"] == terms["yak"] == pytest.approx(s.sparse.values[1] / 2)
    assert terms["a"] == 1


@pytest.mark.parametrize("text", ["", "q a b", "a a q c xy", "nothing"])
def test_shares_of_query_words_add_up_to_the_query(text: str) -> None:
    found = model()
    u = found.encode_queries([text])
    terms = found.query_terms(text)
    total = np.sum([term.dense for term in terms], axis=0) if terms else np.zeros(2)
    np.testing.assert_allclose(total, u.dense[0], rtol=1e-5, atol=1e-6)
    assert sum(term.weight for term in terms) == pytest.approx(float(u.sparse.values.sum()))
    if "a b" in text:
        assert terms[-1].term == "“a b”"


def test_a_document_becomes_a_query_by_its_query_fields() -> None:
    fields = {"title": "T", "text": "b", "more": "m", "section": 3}
    assert model().query_text(fields) == "T\nb"
    assert model().query_text({"text": None}) == ""


def test_a_model_equals_itself_after_storing_and_loading() -> None:
    for k3 in (1.0, np.inf):
        found = model(k3=k3)
        again = load_model(found.parts())
        assert again.config == found.config
        assert again.config["kind"] == KIND
        a, b = (m.encode_queries(["q a b b", "xy"]) for m in (found, again))
        for name in ("dense", "indices", "weights"):
            np.testing.assert_array_equal(a.arrays()[name], b.arrays()[name])


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("query.table", f32([1, 2]), r"query\.table has 1 rows where 4 are needed"),
        ("query.idf", f32(1, 2), r"query\.idf has 2 rows where 5 are needed"),
        ("sparse.idf", f32(1), r"sparse\.idf"),
        ("sparse.D", f32([1, 2, 3]), r"sparse\.D has not one row per field"),
        ("sparse.D", f32([1, 2], [1, 2]), r"sparse\.D has 2 rows where 3"),
        ("phrases.P", f32(), r"phrases\.P has 0 rows where 1"),
        ("document.table", f32([1], [2], [3]), "differ in width"),
        ("document.table", None, r"document\.table"),
    ],
)
def test_parts_that_do_not_fit_are_refused(array: str, value: Any, message: str) -> None:
    parts = model().parts()
    arrays = {**parts.arrays, array: value}
    if value is None:
        del arrays[array]
    with pytest.raises(BundleError, match=message):
        load_model(Parts(parts.config, arrays, parts.strings))


@pytest.mark.parametrize("kind", ["neural", None, ["linear"]])
def test_an_unknown_kind_of_model_is_refused(kind: Any) -> None:
    parts = model().parts()
    with pytest.raises(BundleError, match=r"unknown kind .*; known kinds: .*linear"):
        load_model(Parts({**parts.config, "kind": kind}, parts.arrays, parts.strings))


def tower(sizes: tuple[int, ...], *, skip: bool = False, seed: int = 0) -> Tower:
    rng = np.random.default_rng(seed)
    pairs = pairwise(sizes)
    weights = [(rng.standard_normal(pair) / 2).astype(np.float32) for pair in pairs]
    return Tower(weights, [rng.standard_normal(n).astype(np.float32) for n in sizes], skip)


def by_hand(t: Tower, a: np.ndarray) -> np.ndarray:
    """Return the formula in float64, all rows at once."""
    h = np.tanh(a.astype(np.float64) + t.biases[0])
    for i, (weight, bias) in enumerate(zip(t.weights, t.biases[1:], strict=True)):
        p = h @ weight.astype(np.float64) + bias
        h = p if t.skip and i == len(t.weights) - 1 else np.tanh(p)
    return a + h if t.skip else h


@pytest.mark.parametrize(
    ("sizes", "skip"), [((5,), False), ((5, 7), False), ((5, 7, 3), False), ((5, 9, 5), True)]
)
def test_a_tower_equals_its_formula_row_by_row(sizes: tuple[int, ...], skip: bool) -> None:
    t, rng = tower(sizes, skip=skip), np.random.default_rng(1)
    a = rng.standard_normal((40, 5)).astype(np.float32)
    a[3] = 0
    a[4] = 1e30
    out = t.apply(a)
    assert out.dtype == np.float32
    assert out.shape == (40, t.width(5))
    rest = np.arange(40) != 4
    np.testing.assert_allclose(out[rest], by_hand(t, a)[rest], rtol=1e-5, atol=1e-5)
    assert np.isfinite(out).all()
    for i in range(len(a)):
        apart = np.concatenate([np.zeros(1, np.float32), a[i]])[1:]  # elsewhere in memory
        np.testing.assert_array_equal(t.apply(apart[None])[0], out[i])


def test_a_tower_without_layers_is_the_identity() -> None:
    a = np.ones((2, 3), np.float32)
    assert not Tower()
    assert Tower().apply(a) is a
    assert Tower().width(3) == 3


@pytest.mark.parametrize(
    ("weights", "biases", "skip"),
    [
        ([(3, 4)], [], False),
        ([], [], True),
        ([], [3], True),
        ([(3, 4)], [3], False),
        ([(3, 4)], [3, 5], False),
        ([(3, 4)], [4, 4], False),
        ([(3, 4)], [3, 4], True),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    weights: list[tuple[int, int]], biases: list[int], skip: bool
) -> None:
    zeros = [np.zeros(shape, np.float32) for shape in weights]
    with pytest.raises(ValueError, match=r"tower|layer|weights"):
        Tower(zeros, [np.zeros(n, np.float32) for n in biases], skip)
    with pytest.raises(ValueError, match="where the table has 4 columns"):
        tower((3,)).width(4)


def test_a_text_without_features_stays_zero_under_a_tower() -> None:
    """A text without features has no bias either; unknown words get trigram vectors under layers too."""
    side = DenseSide(
        Vocabulary(["ab"]), np.ones(2, np.float32), np.ones((1, 4), np.float32),
        Vocabulary(["#ab", "bc#"]), np.ones((2, 4), np.float32), tower=tower((4, 6)),
    )  # fmt: skip
    counts = count_corpus([["", "ab", "abc", "zz"]])
    dense = side.embed(counts.words, counts.columns, [1.0])
    assert dense.shape == (4, 6)
    np.testing.assert_array_equal(dense[0], 0)
    assert (dense[1:] != 0).all()  # "zz" is a word, if one of which nothing is known
    alone = replace(side, trigrams=Vocabulary([]), trigram_table=np.zeros((0, 4), np.float32))
    dense = alone.embed(counts.words, counts.columns, [1.0])
    np.testing.assert_array_equal(dense[[0, 2, 3]], 0)


def test_counted_words_weigh_by_the_root_of_their_trigrams() -> None:
    """φ counts letter trigrams: a word's row is the mean of theirs times the root of their number, twice."""
    trigrams = ["#ab", "ab#", "abb", "bb#"]
    T = np.eye(4, dtype=np.float32)
    rows = np.array([[1, 1, 0, 0], [1, 0, 1, 1]], np.float32) / np.sqrt([[2], [3]])
    side = DenseSide(
        Vocabulary(["ab", "abb"]), np.full(3, 7, np.float32), rows.astype(np.float32),
        Vocabulary(trigrams), T, counted=True,
    )  # fmt: skip
    counts = count_corpus([["ab ab abb", "abbb", ""]])
    dense = side.embed(counts.words, counts.columns, [1.0])
    # abbb is unseen: #ab, abb, bbb, bb#, of which three are known.
    np.testing.assert_allclose(dense, [[3, 2, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]], rtol=1e-6)


# Joined, in the plural, irregular, with accents, and parts of each other.
WORDS = sorted(
    [
        "base",
        "bases",
        "child",
        "children",
        "data",
        "database",
        "databases",
        "datas",
        "fi",
        "mice",
        "mouse",
        "play",
        "playstation",
        "station",
        "stations",
        "wi",
        "wifi",
        "wifis",
        "é",
    ]
)


@given(
    st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=18),
    st.integers(0, 2**32 - 1),
    st.sampled_from([(0.7, 0.4), (0.0, 0.4), (0.7, 0.0), (0.0, 0.0)]),
    st.sampled_from([0, 3]),
    st.booleans(),
)
def test_a_query_has_the_same_bits_alone_and_in_a_batch(
    asked: list[str], seed: int, discounts: tuple[float, float], terms: int, counted: bool
) -> None:
    """Alone, a query of known words is encoded in one step."""
    rng = np.random.default_rng(seed)
    idf = rng.uniform(0.1, 4, len(WORDS)).astype(np.float32)
    table = rng.normal(size=(len(WORDS), 3)).astype(np.float32)
    side = DenseSide(
        Vocabulary(WORDS), np.append(idf, idf[:1]), table, terms=terms, counted=counted
    )
    found = model(
        query=side, document=side, words=Vocabulary(WORDS), idf=idf, D=np.stack([idf, idf]),
        phrases=Phrases(["data base", "wi fi wi"]), P=f32(1, 2), folded=discounts[0],
        plurals=discounts[1], compounds=["play station", "data base"], terms=terms, k3=0.7,
    )  # fmt: skip
    text = " ".join(asked)
    alone, both = found.encode_queries([text]), found.encode_queries([text, "two words"])
    for one, other in zip(alone.arrays().values(), both.slice(0, 1).arrays().values(), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
