"""Each kernel against its numpy twin, on rows that are empty, of one word, all zero, or in no text."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage.encoding import Int64, Rows
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear import kernels, softmax
from fullrank_trainer.systems.linear.batches import Scratch, by_column, number, renumber, take
from fullrank_trainer.systems.linear.softmax import (
    Postings,
    choose_candidates,
    places_of,
    postings_of,
)
from fullrank_trainer.systems.linear.towers import transpose
from tests.planted import write_planted
from tests.random_cases import cases

FEATURES, WIDTH = 30, 8


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def nasty_rows(seed: int = 0) -> Rows:
    """Rows that are empty (first, middle, last), of one word, all zero, or negative; columns from 25 on are unused."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((40, FEATURES)) < 0.3, rng.random((40, FEATURES)) + 0.1, 0)
    dense[[0, 7, 39]] = 0
    dense[3] = 0
    dense[3, 5] = 2
    dense[11, 2] = -1.5
    dense[:, 25:] = 0
    rows = Rows.from_csr(sp.csr_array(dense.astype(np.float32)))
    zero = slice(rows.indptr[9], rows.indptr[10])
    rows.values[zero] = 0
    assert rows.indptr[10] > rows.indptr[9]
    return rows


def with_threads(count: int, kernel: Callable[..., None], *args: Any) -> list[np.ndarray]:
    """Run the kernel on some threads; return copies of its arrays."""
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*copies)
    return [a for a in copies if isinstance(a, np.ndarray)]


def postings(z: Rows, s: Rows, common: float) -> tuple[np.ndarray, Rows, Postings]:
    """The words of s, s over these words, and the postings of all rows of z for them."""
    asked, places = number(s.indices, s.width, Scratch())
    found = postings_of(z, np.arange(len(z)), len(asked), places, common)
    return asked, renumber(s, asked, places), found


def check_threads(kernel: Callable[..., None], *args: Any) -> list[np.ndarray]:
    """Check that one thread and all threads give the same bits; return the arrays."""
    alone, many = with_threads(1, kernel, *args), with_threads(64, kernel, *args)
    for a, b in zip(alone, many, strict=True):
        np.testing.assert_array_equal(a, b)
    return alone


def table(seed: int = 1) -> np.ndarray:
    """(FEATURES, WIDTH), float32."""
    return np.random.default_rng(seed).standard_normal((FEATURES, WIDTH), np.float32)


def test_embed_equals_its_numpy_twin() -> None:
    x, U = nasty_rows(), table()
    out = np.full((len(x), WIDTH), np.nan, np.float32)
    found = check_threads(kernels.embed, x.indptr, x.indices, x.values, U, out)[-1]
    np.testing.assert_allclose(found, x.csr().toarray() @ U, rtol=1e-5, atol=1e-6)
    assert (found[[0, 7, 9, 39]] == 0).all()
    np.testing.assert_array_equal(found[3], 2 * U[5])


def test_embed_handles_no_texts() -> None:
    nothing = Rows.from_csr(sp.csr_array(np.zeros((0, FEATURES), np.float32)))
    out = np.empty((0, WIDTH), np.float32)
    kernels.embed(nothing.indptr, nothing.indices, nothing.values, table(), out)
    assert out.shape == (0, WIDTH)


def test_transpose_equals_the_dense_transpose() -> None:
    x = nasty_rows()
    touched, indptr, rows, values = transpose(x, Scratch())
    dense = np.zeros((len(x), FEATURES), np.float32)
    for t, f in enumerate(touched.tolist()):
        dense[rows[indptr[t] : indptr[t + 1]], f] = values[indptr[t] : indptr[t + 1]]
    np.testing.assert_array_equal(dense, x.csr().toarray())
    assert touched.max() < 25
    assert (np.diff(indptr) > 0).all()


def test_adagrad_table_equals_its_numpy_twin() -> None:
    x, U = nasty_rows(), table()
    rng = np.random.default_rng(2)
    gradient = rng.standard_normal((len(x), WIDTH)).astype(np.float32)
    squares = np.where(rng.random(FEATURES) < 0.5, rng.random(FEATURES), 0).astype(np.float32)
    *_, changed, sums = check_threads(
        kernels.adagrad_table, *transpose(x, Scratch()), gradient, U, squares, 0.1
    )
    g = x.csr().toarray().astype(np.float64).T @ gradient
    wanted_sums = squares + np.square(g).mean(axis=1)
    step = 0.1 * g / np.sqrt(np.where(wanted_sums == 0, 1, wanted_sums))[:, None]
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(changed, U - step, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(changed[25:], U[25:])


def test_adagrad_changes_nothing_without_a_gradient() -> None:
    x, U = nasty_rows(), table()
    squares, nothing = np.zeros(FEATURES, np.float32), np.zeros((len(x), WIDTH), np.float32)
    *_, changed, sums = check_threads(
        kernels.adagrad_table, *transpose(x, Scratch()), nothing, U, squares, 0.1
    )
    np.testing.assert_array_equal(changed, U)
    np.testing.assert_array_equal(sums, 0)


@pytest.mark.parametrize("common", [0.0, 0.3, 1.0])
def test_match_equals_its_numpy_twin(common: float) -> None:
    s, z = nasty_rows(), nasty_rows(5)
    D = np.random.default_rng(3).random(FEATURES, np.float32)
    before = np.random.default_rng(4).random((len(s), len(z)), np.float32)
    asked, local, by_word = postings(z, s, common)
    found = check_threads(
        kernels.match, local.indptr, local.indices, local.values, *by_word, D[asked], before
    )[-1]
    wanted = before + s.csr().toarray() @ np.diag(D) @ z.csr().toarray().T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], before[0])


@pytest.mark.parametrize("common", [0.0, 0.3, 1.0])
def test_match_gradient_equals_its_numpy_twin(common: float) -> None:
    s, z = nasty_rows(), nasty_rows(5)
    G = np.random.default_rng(3).standard_normal((len(s), len(z))).astype(np.float32)
    asked, local, by_word = postings(z, s, common)
    by_query_word = by_column(local, np.arange(len(s)), len(asked))
    out = np.full(len(asked), np.nan, np.float32)
    found = check_threads(kernels.match_gradient, *by_query_word, *by_word, G, out)[-1]
    full = np.einsum("ic,iw,cw->w", G, s.csr().toarray(), z.csr().toarray())
    np.testing.assert_allclose(found, full[asked], rtol=1e-4, atol=1e-5)


def ragged(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """indptr and values, int64."""
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return indptr, np.array([x for row in lists for x in row], np.int64)


def softmax_loss(row: np.ndarray, positives: list[int], masked: list[int]) -> float:
    """Σ_p |P|^−½ · −log(e^{f(p)} / (e^{f(p)} + Σ_{n not masked} e^{f(n)})), float64."""
    negatives = [c for c in range(len(row)) if c not in masked]
    total = 0.0
    for p in positives:
        scores = np.append(row[negatives], row[p]).astype(np.float64)
        top = scores.max()
        total += top + np.log(np.exp(scores - top).sum()) - row[p]
    return float(total / np.sqrt(len(positives)))


UNWEIGHTED = UNBIASED = np.zeros(0, np.float32)


POSITIVES = [[2], [0, 3, 5], [1], [0, 1, 2, 3, 4, 5], [4]]
MASKED = [[2], [0, 3, 5, -1, 1], [1, -1], [0, 1, 2, 3, 4, 5], [4, 0]]


def test_exponentials_are_those_of_numpy() -> None:
    x = np.append(np.linspace(-87, 0, 100_001), -(2.0 ** -np.arange(30))).astype(np.float32)
    found = np.array([kernels.exponential(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2 * 2.0**-23)
    assert kernels.exponential(np.float32(0)) == 1
    for value in (-87.1, -104.0, -1e30, -np.inf):
        assert kernels.exponential(np.float32(value)) == 0
    assert np.isnan(kernels.exponential(np.float32(np.nan)))


def test_a_row_with_a_score_that_is_no_number_has_no_finite_loss() -> None:
    S, losses = np.array([[0, np.nan, 3]], np.float32), np.empty(1, np.float32)
    kernels.softmax_gradient(S, UNBIASED, *ragged([[2]]), *ragged([[2]]), UNWEIGHTED, losses)
    assert np.isnan(losses[0])


def test_softmax_gradient_by_finite_differences() -> None:
    """∂L/∂f of every score; masked scores (known positives and the query itself) are no negatives."""
    rng = np.random.default_rng(6)
    S = (rng.standard_normal((5, 6)) * 3).astype(np.float32)
    bias = rng.standard_normal(6, np.float32)
    losses = np.empty(5, np.float32)
    G, *_, found = check_threads(
        kernels.softmax_gradient, S, bias, *ragged(POSITIVES), *ragged(MASKED), UNWEIGHTED, losses
    )
    step = 1e-5
    for i, (positives, masked) in enumerate(zip(POSITIVES, MASKED, strict=True)):
        row = (S[i] + bias).astype(np.float64)
        wanted = np.zeros(6)
        for c in range(6):
            up, down = row.copy(), row.copy()
            up[c] += step
            down[c] -= step
            wanted[c] = (
                softmax_loss(up, positives, masked) - softmax_loss(down, positives, masked)
            ) / (2 * step)
        np.testing.assert_allclose(5 * G[i], wanted, rtol=1e-4, atol=1e-6)
        mean = softmax_loss(row, positives, masked) / np.sqrt(len(positives))
        assert found[i] == pytest.approx(mean, rel=1e-4, abs=1e-5)
    assert G[4, 0] == 0
    assert (G[3] == 0).all()  # every document is relevant, so the gradient is zero


def test_weighted_softmax_gradient_by_finite_differences() -> None:
    """L = Σ_p w_p −log P(p); the reported loss is the weighted mean."""
    rng = np.random.default_rng(7)
    S = (rng.standard_normal((5, 6)) * 3).astype(np.float32)
    starts, positives = ragged(POSITIVES)
    weights = rng.uniform(0.05, 3, len(positives)).astype(np.float32)
    losses = np.empty(5, np.float32)
    G, *_, found = check_threads(
        kernels.softmax_gradient, S, UNBIASED, starts, positives, *ragged(MASKED), weights, losses
    )
    step = 1e-5
    for i, masked in enumerate(MASKED):
        row = S[i].astype(np.float64)
        terms = [
            (w, [p])
            for p, w in zip(POSITIVES[i], weights[starts[i] : starts[i + 1]].tolist(), strict=True)
        ]
        hidden = [*masked, *POSITIVES[i]]

        def loss(scores: np.ndarray, terms: Any = terms, hidden: Any = hidden) -> float:
            return sum(w * softmax_loss(scores, positive, hidden) for w, positive in terms)

        wanted = [(loss(row + e) - loss(row - e)) / (2 * step) for e in np.eye(6) * step]
        np.testing.assert_allclose(5 * G[i], wanted, rtol=1e-4, atol=1e-6)
        mean = loss(row) / sum(w for w, _ in terms)
        assert found[i] == pytest.approx(mean, rel=1e-4, abs=1e-5)


def test_weights_of_one_over_the_root_are_no_weights() -> None:
    S = np.random.default_rng(8).standard_normal((5, 6), np.float32)
    positives = ragged(POSITIVES)
    weights = np.concatenate([np.full(len(p), len(p) ** -0.5, np.float32) for p in POSITIVES])
    plain, weighted = S.copy(), S.copy()
    for G, w in ((plain, UNWEIGHTED), (weighted, weights)):
        losses = np.empty(5, np.float32)
        kernels.softmax_gradient(G, UNBIASED, *positives, *ragged(MASKED), w, losses)
    np.testing.assert_allclose(weighted, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_softmax_gradient_of_extreme_scores_is_finite(shift: float) -> None:
    S = np.array([[0, 80, -80, 3, 0, 0]], np.float32) + np.float32(shift)
    losses = np.empty(1, np.float32)
    kernels.softmax_gradient(S, UNBIASED, *ragged([[2]]), *ragged([[2]]), UNWEIGHTED, losses)
    assert np.isfinite(S).all()
    assert np.isfinite(losses).all()
    assert S[0, 2] == pytest.approx(-1)
    assert S.sum() == pytest.approx(0, abs=1e-6)


SETTINGS = ModelSettings(
    latent="learned", dimension=4, diagonal="learned", bias=True, match="bm25", phrases=True
)
TRAIN = TrainSettings(loss="softmax", candidates=20, batch=4, word_dropout=0.2)


def dense_candidates(
    pairs: Pairs,
    queries: Int64,
    positives: Int64,
    pool: int | Int64,
    count: int,
    rng: np.random.Generator,
) -> Int64:
    """Mark candidates in a mask of all documents, and draw from the list of the whole pool."""
    rows = np.arange(pool) if isinstance(pool, int) else pool
    mask = np.zeros(max(rows.max(), pairs.documents.max()) + 1, np.bool_)
    mask[positives] = True
    judged = set(pairs.documents.tolist())
    for query in queries.tolist():
        passed = pairs.passed_over
        found = passed[query].tolist() if passed is not None and query in passed else []
        mask[[row for row in found if row in judged]] = True
    missing = min(count, len(rows)) - int(mask.sum())
    if missing > 0:
        mask[rng.choice(rows, missing, replace=False)] = True
    return np.flatnonzero(mask)


def dense_places(candidates: Int64, documents: Int64) -> Int64:
    """Look places up in an array of all documents."""
    place = np.full(max(candidates.max(initial=0), documents.max(initial=0)) + 1, -1)
    place[candidates] = np.arange(len(candidates))
    return np.array([place[row] if row >= 0 else -1 for row in documents.tolist()], np.int64)


def random_pairs(documents: int, rng: np.random.Generator) -> Pairs:
    """Judge a few documents of each of 40 queries, among the lower half; people passed over some of all."""
    relevant = {q: np.unique(rng.integers(0, documents // 2 + 1, 4)) for q in range(40)}
    passed_over = {q: np.unique(rng.integers(0, documents, 30)) for q in range(0, 40, 3)}
    return Pairs.from_lists(relevant, passed_over=Pairs.from_lists(passed_over))


# Below 10,000 documents numpy draws one way, above it another way if it draws more than a fiftieth.
@pytest.mark.parametrize("documents", [12, 300, 12_000, 200_000])
@pytest.mark.parametrize("judged", [True, False], ids=["judged", "all"])
@pytest.mark.parametrize("passed_over", [True, False], ids=["passed-over", "plain"])
def test_candidates_equal_those_of_a_mask(documents: int, judged: bool, passed_over: bool) -> None:
    rng = np.random.default_rng(documents)
    pairs = random_pairs(documents, rng)
    if not passed_over:
        pairs = replace(pairs, passed_over=None)
    pool = pairs.documents if judged else documents
    for count in (2, 40, 100, 1000):
        queries = np.sort(rng.permutation(40)[:9])
        positives = np.concatenate([pairs[q] for q in queries.tolist()])
        found_rng, wanted_rng = (np.random.default_rng(count) for _ in range(2))
        found = choose_candidates(pairs, queries, positives, pool, count, found_rng)
        wanted = dense_candidates(pairs, queries, positives, pool, count, wanted_rng)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == np.int64
        assert found_rng.bit_generator.state == wanted_rng.bit_generator.state


@pytest.mark.parametrize("stride", [1, 7, 1 << 20, 987])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 500])
def test_places_equal_those_of_an_array(count: int, stride: int) -> None:
    """Any number of candidates, close together and far apart, looked up by hits, misses and -1."""
    rng = np.random.default_rng(count)
    numbers = np.sort(rng.choice(2 * count + 1, count, replace=False))
    asked = rng.integers(-1, 2 * count + 2, 1000)
    found = places_of(numbers * stride, np.where(asked < 0, -1, asked * stride))
    np.testing.assert_array_equal(found, dense_places(numbers, asked))
    assert found.dtype == np.int64
    assert places_of(numbers, np.zeros(0, np.int64)).shape == (0,)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Planted features, where queries have mates, people passed over some documents, and a few have no judgement."""
    folder = write_planted(tmp_path_factory.mktemp("candidates"))
    built = build_features(count_collection(read_collection(folder), processes=1), SETTINGS)
    rng, documents = np.random.default_rng(4), built.documents
    pairs = built.pairs.where(built.pairs.entries < documents - 3)
    passed_over = {
        q: np.sort(rng.choice(documents, 3, replace=False)) for q in pairs.queries.tolist()
    }
    mates = rng.integers(-1, documents, len(built.mates))
    return replace(
        built, pairs=replace(pairs, passed_over=Pairs.from_lists(passed_over)), mates=mates
    )


def trained(features: Features, train: TrainSettings) -> list[bytes]:
    """Return the bits of two epochs."""
    learner = softmax.SoftmaxLearner(features, train, np.random.default_rng(3))
    for epoch in range(2):
        list(learner.steps(epoch / 2, 0.5))
    return bits(learner)


def bits(learner: softmax.SoftmaxLearner) -> list[bytes]:
    """Return those of all parameters and sums."""
    return [array.tobytes() for array in (learner.parameters() | learner.state()).values()]


@pytest.mark.parametrize("source", ["all", "judged"])
@pytest.mark.parametrize("most", [64, 2])
def test_a_training_equals_that_with_masks(
    features: Features, source: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, also if a query has more judged documents than a step may read."""
    monkeypatch.setattr(softmax, "_MAX_POSITIVES", most)
    train = replace(TRAIN, sampled_from=source)
    found = trained(features, train)
    with monkeypatch.context() as patch:
        patch.setattr(softmax, "choose_candidates", dense_candidates)
        patch.setattr(softmax, "places_of", dense_places)
        assert trained(features, train) == found
    assert trained(features, replace(train, candidates=21)) != found


@pytest.mark.parametrize("cold_dropout", [0.0, 0.5])
def test_an_epoch_equals_one_that_levels_biases_after_each_step(
    features: Features, cold_dropout: float
) -> None:
    """Bit for bit: unjudged documents need the median bias of the others only where something reads it."""
    train = replace(TRAIN, sampled_from="judged", cold_dropout=cold_dropout)
    learner = softmax.SoftmaxLearner(features, train, np.random.default_rng(3))
    unjudged = np.setdiff1d(np.arange(features.documents), features.pairs.documents)
    assert len(unjudged)
    bias = learner.values.bias
    for epoch in range(2):
        for _ in learner.steps(epoch / 2, 0.5):
            bias[unjudged] = np.median(bias[features.pairs.documents])
    assert bias[unjudged].all()
    assert bits(learner) == trained(features, train)


DOCUMENTS = 2_000_000


def with_empty_documents(features: Features, count: int) -> Features:
    """Append documents without text."""

    def extended(rows: Rows) -> Rows:
        more = np.full(count - len(rows), rows.indptr[-1])
        return Rows(np.append(rows.indptr, more), rows.indices, rows.values, rows.width)

    return replace(
        features,
        xd=replace(features.xd, words=extended(features.xd.words)),
        z=[extended(z) for z in features.z],
        document_phrases=extended(features.document_phrases),
    )


@pytest.mark.parametrize("source", ["all", "judged"])
def test_a_step_allocates_no_array_of_all_documents(features: Features, source: str) -> None:
    """Not even a bit for each of two million documents."""
    large = with_empty_documents(features, DOCUMENTS)
    train = replace(TRAIN, sampled_from=source)
    learner = softmax.SoftmaxLearner(large, train, np.random.default_rng(3))
    steps = learner.steps(0.0, 1.0)
    next(steps)  # compiles the kernels
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        next(steps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < DOCUMENTS / 8


@pytest.fixture(autouse=True, scope="module")
def _batches_threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Rows, Int64]:
    """Random sparse rows, and rows of a batch in any order, repeats included."""
    count, width = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.4)
    rows = Rows.from_csr(sp.csr_array(dense.astype(np.float32)))
    batch = draw(st.lists(st.integers(0, count - 1), max_size=15))
    numba.set_num_threads(draw(st.sampled_from([1, numba.config.NUMBA_NUM_THREADS])))  # type: ignore[attr-defined]
    return rows, np.array(batch, np.int64)


@cases(30)
@given(batches())
def test_taken_rows_are_those_of_rows_take(example: tuple[Rows, Int64]) -> None:
    matrix, rows = example
    found, wanted = take(matrix, rows), matrix.take(rows)
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype


@cases(30)
@given(batches(), st.integers(0, 2**32))
def test_columns_of_a_batch_are_those_of_scipy(example: tuple[Rows, Int64], seed: int) -> None:
    matrix, rows = example
    wanted = np.flatnonzero(np.random.default_rng(seed).random(matrix.width) < 0.6)
    places = np.full(matrix.width, -1, np.int32)
    places[wanted] = np.arange(len(wanted))
    twin = matrix.take(rows).csr().tocsc()
    some = by_column(matrix, rows, len(wanted), places)
    for found, csc in ((by_column(matrix, rows, matrix.width), twin), (some, twin[:, wanted])):
        csc.sort_indices()
        for array, of_twin in zip(found, (csc.indptr, csc.indices, csc.data), strict=True):
            np.testing.assert_array_equal(array, of_twin)


@cases(30)
@given(batches())
def test_columns_that_occur_are_numbered(example: tuple[Rows, Int64]) -> None:
    matrix, rows = example
    batch, scratch = matrix.take(rows), Scratch()
    number(matrix.indices, matrix.width, scratch)  # another batch leaves no numbers behind
    columns, places = number(batch.indices, batch.width, scratch)
    np.testing.assert_array_equal(columns, np.unique(batch.indices))
    np.testing.assert_array_equal(np.flatnonzero(places >= 0), columns)
    local = renumber(batch, columns, places)
    np.testing.assert_array_equal(local.csr().toarray(), batch.csr().toarray()[:, columns])


@cases(30)
@given(batches(), st.sampled_from([0.0, 0.3, 1.0]))
def test_common_words_have_a_row_with_every_candidate(
    example: tuple[Rows, Int64], common: float
) -> None:
    matrix, rows = example
    every = np.arange(matrix.width, dtype=np.int32)
    starts, texts, weights, row, table = postings_of(matrix, rows, matrix.width, every, common)
    dense = matrix.take(rows).csr().toarray()
    often = np.flatnonzero((dense != 0).sum(axis=0) > common * len(rows))
    np.testing.assert_array_equal(np.flatnonzero(row >= 0), often)
    np.testing.assert_array_equal(table, dense[:, often].T)
    # Lists have the words that are left, and nothing of the common ones.
    rare = dense.copy()
    rare[:, often] = 0
    listed = sp.csc_array((weights, texts, starts), shape=dense.shape)
    np.testing.assert_array_equal(listed.toarray(), rare)
    assert len(texts) == starts[-1] == np.count_nonzero(rare)
