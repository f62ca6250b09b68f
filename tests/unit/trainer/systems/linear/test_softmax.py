"""The softmax loss: every gradient against finite differences of a float64 twin.

AdaGrad divides by the root of its sum of squares. Starting that sum at 10⁶ with a rate of 10³ makes one step the
gradient itself, to six figures: the change of a parameter is the code's ∂L/∂θ.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.storage.encoding import Int64, Rows
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear import kernels, softmax
from fullrank_trainer.systems.linear.batches import Scratch
from fullrank_trainer.systems.linear.parameters import Parameters, start
from tests.planted import write_planted, write_planted_links

SETTINGS = ModelSettings(
    latent="learned", dimension=4, diagonal="learned", bias=True, match="bm25", phrases=True,
    trigrams="on",
)  # fmt: skip
TRAIN = TrainSettings(
    loss="softmax", word_dropout=0.0, candidates=1000, batch=7, rate=1.0, layer_rate=1.0
)
SQUARES, RATE = 1e6, 1e3


VARIANTS: dict[str, dict[str, Any]] = {
    "asked": {},
    "linked": {},
    "tied": {"tied": True},
    "towers": {"layers": (5, 3), "cosine": 6.0},
    "paper": {"layers": (3,), "cosine": 6.0, "trigrams": "only", "phi": "counts"},
    "skip tied": {"tied": True, "layers": (3, 4), "skip": True},
}


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda name: name.replace(" ", "-"))
def features(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Separate queries, documents as queries, tied tables, and layers."""
    folder = tmp_path_factory.mktemp("softmax")
    write = write_planted_links if request.param in ("linked", "tied") else write_planted
    corpus = count_collection(read_collection(write(folder)), processes=1)
    return build_features(corpus, replace(SETTINGS, **VARIANTS[request.param]))


def state_of(features: Features) -> softmax.State:
    """Random parameters, AdaGrad's sums so large that a step is the gradient."""
    rng = np.random.default_rng(1)
    p = start(features, replace(TRAIN, init=0.5), rng)
    p.D *= rng.random(p.D.shape, np.float32)
    p.bias += rng.standard_normal(p.bias.shape, np.float32)
    state = softmax.start_state(features, TRAIN, p)
    for tower in (p.query, p.document):
        for _, array in tower.arrays():
            array += rng.standard_normal(array.shape, np.float32) / 3
    for name, array in state.arrays():
        if name not in ("start", "scale"):
            array[...] = 1e30 if name == "squares_scale" else SQUARES
    p.D /= state.start[:, None]
    state.start[:] = 1
    return state


class Twin:
    """The loss over all documents, in float64 and densely. Arrays of tied sides have the query's names."""

    def __init__(self, features: Features, queries: np.ndarray) -> None:
        self.settings = features.settings

        def dense(rows: Rows) -> np.ndarray:
            return rows.csr().toarray().astype(np.float64)

        self.queries, self.pairs = queries, features.pairs
        self.mates = features.mates
        self.xq, self.xd = dense(features.xq)[queries], dense(features.xd.composed())
        self.s, self.z = dense(features.s)[queries], [dense(z) for z in features.z]

    def side(self, x: np.ndarray, table: np.ndarray, values: dict[str, np.ndarray]) -> np.ndarray:
        """u or v, γ left out."""
        y = a = x @ table
        depth = len(self.settings.layers) + 1 if self.settings.layers else 0
        for i in range(depth):
            p = (y @ values[f"W{i}"] if i else a) + values[f"b{i}"]
            y = p if self.settings.skip and i == depth - 1 else np.tanh(p)
        y = a + y if self.settings.skip else y
        if self.settings.cosine:
            y = y / np.linalg.norm(y, axis=1, keepdims=True)
        return y

    def losses(self, values: dict[str, np.ndarray]) -> list[list[float]]:
        """−log P(p) of each judged document of each query."""
        sides = []
        for x, table, prefix in ((self.xq, "U", "query."), (self.xd, "V", "document.")):
            tied = table not in values
            prefix = "query." if tied else prefix
            above = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
            sides.append(self.side(x, values["U" if tied else table], above))
        S = (self.settings.cosine or 1) * sides[0] @ sides[1].T + values["bias"]
        for z, diagonal in zip(self.z, values["D"], strict=True):
            S = S + self.s @ np.diag(diagonal) @ z.T
        found = []
        for row, q in zip(S, self.queries.tolist(), strict=True):
            known = self.pairs[q].tolist()
            masked = {*known, int(self.mates[q])}
            negatives = np.array([f for n, f in enumerate(row) if n not in masked])
            found.append([float(np.log(np.exp(negatives - row[p]).sum() + 1)) for p in known])
        return found

    def loss(self, values: dict[str, np.ndarray]) -> float:
        """L: the sum over a query's documents over √|P|, the mean over queries."""
        return float(np.mean([np.sum(x) / np.sqrt(len(x)) for x in self.losses(values)]))


def as_float64(p: Parameters) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) for name, array in p.arrays()}


def one_step(features: Features, state: softmax.State, train: TrainSettings) -> Twin:
    """A step on every fourth query; returns the twin of its loss."""
    queries = features.pairs.queries[::4]
    twin = Twin(features, queries)
    losses = twin.losses(as_float64(state.parameters))
    found = softmax._step(
        features, train, state, np.random.default_rng(0), queries, RATE, Scratch()
    )
    assert found == pytest.approx(np.mean([np.mean(x) for x in losses]), rel=1e-4)
    return twin


STEEP = replace(TRAIN, diagonal_rate=RATE, bias_rate=RATE)


def test_gradient_by_finite_differences(features: Features) -> None:
    """The gradient of the whole loss with respect to every array."""
    state = state_of(features)
    before = as_float64(state.parameters)
    twin = one_step(features, state, STEEP)
    for name, array in state.parameters.arrays():
        check_slopes(twin, before, name, before[name] - array)


def check_slopes(
    twin: Twin, before: dict[str, np.ndarray], name: str, gradient: np.ndarray
) -> None:
    """Check slopes along random directions and of single entries."""
    assert np.count_nonzero(gradient) > 2, name

    def slope(direction: np.ndarray, step: float = 1e-5) -> float:
        ends = [
            twin.loss({**before, name: before[name] + sign * step * direction}) for sign in (1, -1)
        ]
        return (ends[0] - ends[1]) / (2 * step)

    rng = np.random.default_rng(3)
    for _ in range(3):
        direction = rng.standard_normal(before[name].shape)
        assert float((gradient * direction).sum()) == pytest.approx(slope(direction), rel=2e-3)
    places = np.argwhere(np.abs(gradient) > np.abs(gradient).max() / 10)
    for place in rng.permutation(places)[:8]:
        direction = np.zeros(before[name].shape)
        direction[tuple(place)] = 1
        assert gradient[tuple(place)] == pytest.approx(slope(direction), rel=1e-2, abs=1e-6)


def test_gradient_of_a_fields_shared_factor(features: Features) -> None:
    """D_f = e^{a_f} M_f: the step on a_f is ∂L/∂a_f = Σ_w ∂L/∂D_w D_w, and changes the whole diagonal."""
    state = state_of(features)
    state.squares_D[:] = 1e30
    state.squares_scale[:] = SQUARES
    before = as_float64(state.parameters)
    twin = one_step(features, state, STEEP)
    for f in range(len(features.z)):
        values = []
        for a in (1e-5, -1e-5):
            D = before["D"].copy()
            D[f] *= np.exp(a)
            values.append(twin.loss({**before, "D": D}))
        slope = (values[0] - values[1]) / 2e-5
        assert -state.scale[f] == pytest.approx(slope, rel=1e-3, abs=1e-6)
        np.testing.assert_allclose(
            state.parameters.D[f], before["D"][f] * np.exp(state.scale[f]), rtol=1e-5
        )


def test_fixed_parameters_do_not_change(features: Features) -> None:
    settings = replace(features.settings, diagonal="identity", bias=False)
    fixed = replace(features, settings=settings)
    state = state_of(fixed)
    state.parameters.bias[:] = 0
    before = state.parameters.copy()
    softmax._step(
        fixed, STEEP, state, np.random.default_rng(0), features.pairs.queries[:5], RATE, Scratch()
    )
    np.testing.assert_array_equal(state.parameters.D, before.D)
    np.testing.assert_array_equal(state.parameters.bias, before.bias)
    assert (state.parameters.V != before.V).any()


def test_start_scales_each_field_of_a_judged_pair(features: Features) -> None:
    """A judged pair that matches in a field scores ``start`` there on average."""
    p = start(features, TRAIN, np.random.default_rng(0))
    softmax.start_state(features, replace(TRAIN, start=3.0), p)
    queries = features.pairs.queries
    first = np.array([features.pairs[q][0] for q in queries.tolist()])
    for z, D in zip(features.z, p.D, strict=True):
        t = z.take(first).csr().toarray() * D
        scores = (features.s.take(queries).csr().toarray() * t).sum(axis=1)
        if (scores > 0).any():
            assert scores[scores > 0].mean() == pytest.approx(3.0, rel=1e-4)
        else:
            assert (np.ptp(D), D[0]) == (0, 1)


def test_dropout_keeps_the_expected_product(features: Features) -> None:
    rows = features.xd.composed()
    assert softmax.dropout(rows, 0.0, np.random.default_rng(0)) is rows
    rng = np.random.default_rng(0)
    kept = [softmax.dropout(rows, 0.4, rng).values / rows.values for _ in range(200)]
    assert set(np.unique(np.round(kept, 4))) == {0.0, np.round(np.float32(0.6**-0.5), 4)}
    assert np.mean(np.square(kept)) == pytest.approx(1, abs=0.02)


def test_an_epoch_uses_every_query_once_at_a_falling_rate(
    features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    rates: list[float] = []

    def record(*args: object) -> float:
        *_, queries, rate, _scratch = args
        assert isinstance(queries, np.ndarray)
        assert isinstance(rate, float)
        seen.extend(queries.tolist())
        rates.append(rate)
        return 1.0

    monkeypatch.setattr(softmax, "_step", record)
    state = state_of(features)
    for epoch in range(2):
        reports = list(
            softmax.epoch(features, TRAIN, state, np.random.default_rng(0), epoch / 2, 0.5)
        )
        assert sum(count for count, _ in reports) == len(features.pairs.queries)
    assert sorted(seen) == sorted([*features.pairs.queries.tolist()] * 2)
    assert rates[0] == 1
    assert (np.diff(rates) < 0).all()
    assert rates[-1] == pytest.approx(0.1, rel=0.5)


def test_candidates_are_all_judged_documents_and_a_sample(
    features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates include every judged document of the batch, however small ``candidates`` is."""
    shapes = []
    kernel = kernels.softmax_gradient

    def record(S: np.ndarray, *rest: np.ndarray) -> None:
        shapes.append(S.shape)
        kernel(S, *rest)

    monkeypatch.setattr(kernels, "softmax_gradient", record)
    queries = features.pairs.queries[:2]
    judged = len(np.unique(np.concatenate([features.pairs[q] for q in queries.tolist()])))
    for candidates in (2, judged + 5):
        train = replace(TRAIN, candidates=candidates)
        loss = softmax._step(
            features, train, state_of(features), np.random.default_rng(0), queries, 0.1, Scratch()
        )
        assert np.isfinite(loss)
    assert shapes[0] == (2, judged)
    assert judged < shapes[1][1] <= judged + 5


def test_documents_that_people_passed_over_are_candidates(tmp_path: Path) -> None:
    """A step on one query has its answers, and those of other queries that people passed over; no unjudged ones."""
    features = clicked_features(tmp_path)
    pairs = features.pairs
    query = int(pairs.queries[0])
    hard = np.setdiff1d(pairs.documents, pairs[query])[:3]
    unjudged = np.setdiff1d(np.arange(features.documents), pairs.documents)[:1]
    passed_over = {query: np.sort(np.concatenate([hard, unjudged]))}
    seen: list[np.ndarray] = []

    def record(self: Features, documents: np.ndarray, *more: Any) -> list[tuple[Rows, Int64]]:
        seen.append(documents)
        return plain(self, documents, *more)

    plain = Features.fields_for_step
    found = replace(features, pairs=replace(pairs, passed_over=Pairs.from_lists(passed_over)))
    state, train = state_of(features), replace(TRAIN, candidates=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Features, "fields_for_step", record)
        for each in (features, found):
            softmax._step(
                each,
                train,
                state,
                np.random.default_rng(0),
                np.array([query], np.int64),
                0.1,
                Scratch(),
            )
    assert seen[0].tolist() == pairs[query].tolist()
    assert seen[1].tolist() == sorted([*pairs[query].tolist(), *hard.tolist()])


def clicked_features(folder: Path) -> Features:
    """Features with clicked text, where training judges none of the documents of two topics."""
    corpus = count_collection(read_collection(write_planted(folder)), processes=1)
    names = [document.id for document in corpus.collection.documents]
    cold = {i for i, name in enumerate(names) if name.startswith(("d0-", "d1-"))}
    kept = {q: d for q, d in corpus.pairs.items() if cold.isdisjoint(d.tolist())}
    pairs = Pairs.from_lists(kept)
    assert 0 < len(pairs.documents) < len(names)
    return build_features(replace(corpus, pairs=pairs), replace(SETTINGS, clicked="on"))


def test_unjudged_documents_are_no_negatives_and_get_the_median_bias(tmp_path: Path) -> None:
    """Sampled among judged documents, no step touches the others; they end with the median bias."""
    features = clicked_features(tmp_path)
    judged = features.pairs.documents
    others = np.setdiff1d(np.arange(features.documents), judged)
    seen: list[np.ndarray] = []
    plain = Features.fields_for_step

    def record(self: Features, documents: np.ndarray, *more: Any) -> list[tuple[Rows, Int64]]:
        seen.append(documents)
        return plain(self, documents, *more)

    train = replace(TRAIN, sampled_from="judged", bias_rate=0.3, candidates=30)
    learner = softmax.SoftmaxLearner(features, train, np.random.default_rng(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Features, "fields_for_step", record)
        list(learner.steps(0.0, 1.0))
    assert np.isin(np.concatenate(seen), judged).all()
    bias = learner.values.bias
    assert len(np.unique(bias[judged])) > 1
    np.testing.assert_array_equal(bias[others], np.median(bias[judged]))
    everything = softmax.SoftmaxLearner(
        features, replace(train, sampled_from="all"), np.random.default_rng(1)
    )
    list(everything.steps(0.0, 1.0))
    assert everything.values.bias[others].max() < 0


def test_a_cold_document_of_a_step_has_no_clicked_text_and_the_median_bias(tmp_path: Path) -> None:
    features = clicked_features(tmp_path)
    assert features.clicks is not None
    documents, queries = features.pairs.documents[:6], features.pairs.queries[:1]
    cold = np.array([True, False] * 3)
    whole = features.fields_for_step(documents, queries)
    found = features.fields_for_step(documents, queries, cold)
    clicked = len(features.field_counts) - 1
    for f, (one, other) in enumerate(zip(found, whole, strict=True)):
        wanted = other[0].take(other[1]).csr().toarray()
        if f == clicked:
            assert wanted[cold].any()
            wanted[cold] = 0
        np.testing.assert_array_equal(one[0].take(one[1]).csr().toarray(), wanted)
    # A step in which nearly every document is cold hardly moves a bias.
    moved = []
    for share in (0.0, 0.95):
        state = state_of(features)
        train = replace(TRAIN, bias_rate=RATE, cold_dropout=share)
        before = state.parameters.bias.copy()
        softmax._step(features, train, state, np.random.default_rng(0), queries, 0.0, Scratch())
        moved.append(np.count_nonzero(state.parameters.bias != before))
    assert moved[1] < 0.3 * moved[0]


def test_a_step_on_weighted_judgements_is_the_gradient_of_the_weighted_loss(
    features: Features,
) -> None:
    """Biases move by ∂L/∂b, by central differences of Σ_p w_p −log P(p)."""
    rng = np.random.default_rng(3)
    weights = {
        q: rng.uniform(0.1, 2, len(rows)).astype(np.float32) for q, rows in features.pairs.items()
    }
    weighted = replace(
        features,
        pairs=replace(features.pairs, weights=np.concatenate([*weights.values()])),
    )
    queries = features.pairs.queries[::4]
    state = state_of(weighted)
    twin, before = Twin(weighted, queries), as_float64(state.parameters)

    def loss(values: dict[str, np.ndarray]) -> float:
        losses = zip(queries.tolist(), twin.losses(values), strict=True)
        return float(np.mean([np.dot(weights[q], found) for q, found in losses]))

    train = replace(TRAIN, bias_rate=RATE)
    softmax._step(weighted, train, state, np.random.default_rng(0), queries, 1.0, Scratch())
    change = before["bias"] - state.parameters.bias
    h = 1e-4
    for row in features.pairs.documents[:5].tolist():
        sides = []
        for sign in (1, -1):
            values = {**before, "bias": before["bias"].copy()}
            values["bias"][row] += sign * h
            sides.append(loss(values))
        assert change[row] == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=0.02, abs=2e-6)
