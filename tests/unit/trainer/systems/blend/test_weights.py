"""The weights of a blend: average precision by brute force, planted optima, and the fallback."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.measures import Float64, average_precision
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank.storage.encoding import Float32
from fullrank_trainer.evaluation.evaluate import Judgement
from fullrank_trainer.systems.blend_weights import (
    PartScores,
    Quality,
    Scored,
    Typed,
    choose,
    lift_unjudged,
    most_queries,
)
from fullrank_trainer.training.validation import Validation

DOCUMENTS = 60
UNJUDGED = np.arange(DOCUMENTS) % 4 == 0


def judged(rng: np.random.Generator, queries: int) -> Validation:
    judgements = []
    for query in range(queries):
        rows = rng.permutation(DOCUMENTS)
        relevant, excluded = np.sort(rows[: 1 + query % 3]), np.sort(rows[5 : 5 + query % 4])
        ones = np.ones(len(relevant), np.int64)
        judgements.append(Judgement(f"q{query}", relevant, ones, excluded))
    return Validation("valid", np.arange(queries), judgements)


def scores_of(rng: np.random.Generator, valid: Validation, strength: float) -> Float32:
    """Random scores; relevant documents have ``strength`` more on average."""
    found = rng.standard_normal((len(valid.judgements), DOCUMENTS)).astype(np.float32)
    for line, judgement in zip(found, valid.judgements, strict=True):
        line[judgement.relevant] += strength
        line[judgement.excluded] = -np.inf
    return found


def of_parts(valid: Validation, parts: list[Float32]) -> PartScores:
    lexical = np.arange(len(parts)) % 2 == 0
    return PartScores(valid, np.stack(parts), UNJUDGED, lexical)


def scored(seed: int, strengths: list[float], queries: int = 150) -> Scored:
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        valid = judged(rng, queries)
        parts.append(of_parts(valid, [scores_of(rng, valid, s) for s in strengths]))
    return Scored(parts[0], parts[1], 0.3)


def test_average_precision_equals_that_of_the_ranking() -> None:
    part = scored(1, [1.0, 0.5]).warm
    assert part is not None
    weights = np.array([0.7, 0.3])
    found = part.average_precision(weights)
    for i, judgement in enumerate(part.judgements):
        total = 0.7 * part.parts[0][i].astype(np.float64) + 0.3 * part.parts[1][i]
        order = np.argsort(-total, kind="stable")[: DOCUMENTS - len(judgement.excluded)]
        grades = np.isin(order, judgement.relevant).astype(np.int64)
        assert found[i] == pytest.approx(average_precision(grades, len(judgement.relevant)))
    assert part.measures(weights)["map"].mean == pytest.approx(found.mean())


def average_precision_twin(part: PartScores, weights: Float64, lift: Lift) -> Float64:
    """The kernel in numpy: the rank of a document is the number of scores at least as high."""
    found = []
    for query, judgement in enumerate(part.judgements):
        scores = part.total(query, weights, lift)
        ranks = np.sort([np.count_nonzero(scores >= scores[d]) for d in judgement.relevant])
        found.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return np.array(found)


@pytest.mark.parametrize("lift", [NO_LIFT, Lift(1.0, 0.4), Lift(1.3, -0.2)])
@pytest.mark.parametrize("weights", [[0.7, 0.3, 0.2], [0.7, 0.0, 0.2], [0.0, 1.0, 0.0]])
def test_average_precision_equals_its_numpy_twin(weights: list[float], lift: Lift) -> None:
    part = scored(9, [1.0, 0.5, 0.2]).cold
    assert part is not None
    part.parts[0, 4] = part.parts[0, 4].round(1)  # equal scores
    found = part.average_precision(np.array(weights), lift)
    np.testing.assert_allclose(
        found, average_precision_twin(part, np.array(weights), lift), rtol=1e-12
    )


def test_equal_scores_rank_a_document_last() -> None:
    valid = judged(np.random.default_rng(2), 9)
    flat = of_parts(valid, [np.zeros((9, DOCUMENTS), np.float32)])
    found = flat.average_precision(np.ones(1))
    for value, judgement in zip(found, valid.judgements, strict=True):
        count = len(judgement.relevant)
        assert value == pytest.approx(np.mean(np.arange(1, count + 1) / DOCUMENTS))


def test_two_parts_that_know_different_things_are_added() -> None:
    found = scored(3, [1.5, 1.5])
    weights = choose(found)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0.2).all()
    value = found.quality(weights).value
    assert value > found.quality(np.array([1.0, 0.0])).value
    assert value > found.quality(np.array([0.0, 1.0])).value


def test_a_part_of_noise_gets_little_weight() -> None:
    weights = choose(scored(4, [2.0, 0.0]))
    assert weights[1] < 0.2
    other = choose(scored(5, [0.0, 2.0]))
    assert other[0] < 0.2


def test_the_first_part_serves_alone_unless_another_is_better_by_a_standard_error() -> None:
    np.testing.assert_array_equal(choose(scored(6, [2.0, 0.0, 0.0], queries=25)), [1, 0, 0])
    assert choose(scored(6, [0.0, 2.0, 0.0], queries=25))[1] > 0.5


def test_a_part_that_repeats_another_is_left_out() -> None:
    plain = scored(8, [0.0, 1.5])
    assert plain.warm is not None
    assert plain.cold is not None
    warm, cold = (of_parts(p.valid, [*p.parts, p.parts[1]]) for p in (plain.warm, plain.cold))
    assert np.count_nonzero(choose(Scored(warm, cold, 0.3))[1:]) == 1


def test_scales_of_the_parts_do_not_matter() -> None:
    plain = scored(7, [1.5, 1.0])
    assert plain.warm is not None
    assert plain.cold is not None
    warm, cold = (
        of_parts(p.valid, [p.parts[0] * 1000, p.parts[1]]) for p in (plain.warm, plain.cold)
    )
    found, wanted = choose(Scored(warm, cold, 0.3)), choose(plain)
    assert found[0] * 1000 / found[1] == pytest.approx(wanted[0] / wanted[1], rel=1e-3)


def test_quality_weighs_cold_queries_by_their_share() -> None:
    one = Quality(np.array([0.5, 0.7]), np.array([0.1, 0.3]), 0.25)
    assert one.value == pytest.approx(0.75 * 0.6 + 0.25 * 0.2)
    assert Quality(np.array([0.5, 0.7]), np.zeros(0), 0.25).value == pytest.approx(0.6)
    assert Quality(np.zeros(0), np.array([0.1, 0.3]), 0.25).value == pytest.approx(0.2)
    other = Quality(np.array([0.4, 0.4]), np.array([0.1, 0.1]), 0.25)
    gain, error = one.gain(other)
    assert gain == pytest.approx(one.value - other.value)
    variances = 0.75**2 * np.var([0.1, 0.3]) / 2 + 0.25**2 * np.var([0.0, 0.2]) / 2
    assert error == pytest.approx(variances**0.5)


def two_kinds(lowered: float) -> Scored:
    """Warm queries ask for judged documents, cold ones for the others, whose scores are lower."""
    rng = np.random.default_rng(11)
    found = []
    for asked in (~UNJUDGED, UNJUDGED):
        rows = rng.choice(np.flatnonzero(asked), 200)
        ones = np.ones(1, np.int64)
        nothing = np.zeros(0, np.int64)
        judgements = [Judgement(f"q{i}", rows[i : i + 1], ones, nothing) for i in range(len(rows))]
        valid = Validation("valid", np.arange(len(rows)), judgements)
        scores = scores_of(rng, valid, 2.5)
        scores[:, UNJUDGED] -= np.float32(lowered)
        found.append(of_parts(valid, [scores]))
    return Scored(found[0], found[1], 0.3)


def dense_only(scored: Scored) -> Scored:
    """The same scores of parts that have a dense part."""
    for scores in scored.measured:
        scores.lexical[:] = False
    return scored


@pytest.mark.parametrize("most_lost", [0.01, 0.05])
def test_unjudged_documents_are_raised_within_what_warm_queries_may_lose(most_lost: float) -> None:
    one = np.ones(1)
    scored = two_kinds(1.0)
    lift = lift_unjudged(scored, one, most_lost)
    before, after = scored.quality(one), scored.quality(one, lift)
    assert after.cold.mean() > before.cold.mean() + 0.05
    assert after.warm.mean() >= (1 - most_lost) * before.warm.mean()
    assert lift.factor > 1
    constant = lift_unjudged(dense_only(scored), one, most_lost)
    assert constant.factor == 1
    assert 0.2 < constant.added <= 1.6
    linked = lift_unjudged(scored, one, most_lost, can_scale=False)
    assert linked.factor == 1
    assert 0.2 < linked.added <= 0.6
    assert scored.quality(one, linked).warm.mean() >= (1 - 3 * most_lost) * before.warm.mean()


def test_documents_that_are_ranked_fairly_are_not_raised_at_all() -> None:
    scored = two_kinds(-3.0)
    found = scored.quality(np.ones(1), lift_unjudged(scored, np.ones(1), 0.01))
    assert found.cold.mean() >= scored.quality(np.ones(1)).cold.mean()
    assert lift_unjudged(dense_only(scored), np.ones(1), 0.01) == NO_LIFT
    assert lift_unjudged(Scored(scored.warm, None, 0.3), np.ones(1), 0.5) == NO_LIFT
    assert lift_unjudged(Scored(None, scored.cold, 0.3), np.ones(1), 0.5) == NO_LIFT


def test_only_lexical_scores_of_unjudged_documents_are_multiplied() -> None:
    part = scored(12, [1.0, 0.5]).warm  # the first part is lexical
    assert part is not None
    part.parts[np.isinf(part.parts)] = 0.0
    weights = np.array([0.7, 0.3])
    found = part.total(3, weights, Lift(1.2, 0.75))
    gained = np.where(UNJUDGED, 0.2 * 0.7 * part.parts[0, 3] + 0.75, 0.0)
    np.testing.assert_allclose(found - part.total(3, weights), gained, atol=1e-5)


def test_a_large_corpus_is_scored_for_200_queries() -> None:
    assert [most_queries(count) for count in (1_000, 50_000, 1_000_000)] == [16_777, 335, 200]


def test_no_kind_of_typed_query_ranks_below_the_first_part() -> None:
    """The second part knows titles, and hides what the first one finds for keywords."""
    rng = np.random.default_rng(13)
    valid = judged(rng, 400)
    first, second = scores_of(rng, valid, 2.0), scores_of(rng, valid, 4.0)
    for query in range(200, 400):
        second[query] = rng.permuted(second[query])
    plain = of_parts(valid, [first, second, np.zeros_like(first)])
    kinds = ["title"] * 200 + ["keywords"] * 200
    free, fair = choose(Scored(plain, None, 0.0)), None
    for allowed in (["every"] * 400, kinds):
        typed = Typed(plain, np.zeros((2, DOCUMENTS)), allowed)
        fair, _ = typed.choose(np.array([1.0, 0.0]), NO_LIFT)
        if allowed[0] == "every":
            np.testing.assert_allclose(fair, free[:2])
    assert fair is not None
    alone = plain.average_precision(np.array([1.0, 0.0, 0.0]))
    for weights, is_fair in ((free, False), (np.append(fair, 0.0), True)):
        gained = plain.average_precision(weights) - alone
        assert gained[:200].mean() > 0.05
        assert (gained[200:].mean() > -0.03 * alone[200:].mean()) == is_fair


def test_typed_queries_decide_whether_documents_without_links_are_raised() -> None:
    """They ask for documents with large biases, which are worth nothing once all unjudged ones are raised as much."""
    rng = np.random.default_rng(14)
    asked = np.flatnonzero(~UNJUDGED)[:5]
    ones, nothing = np.ones(1, np.int64), np.zeros(0, np.int64)
    rows = rng.choice(asked, 200)
    judgements = [Judgement("q", rows[i : i + 1], ones, nothing) for i in range(200)]
    valid = Validation("typed", np.zeros(200, np.int64), judgements, ["q"] * 200)
    parts = [scores_of(rng, valid, strength) for strength in (1.0, 0.0)]
    biases = np.zeros((1, DOCUMENTS))
    biases[0, asked] = 1.0
    typed = Typed(of_parts(valid, parts), biases, ["title"] * 200)
    assert typed.allowed(np.ones(1), Lift(1.0, 0.01), 0.01) == Lift(1.0, 0.01)
    assert typed.allowed(np.ones(1), Lift(1.0, 1.0), 0.01) == Lift(1.0, 0.5)
    assert typed.allowed(np.ones(1), Lift(1.0, 2.0), 0.01) == Lift(1.0, 0.5)
    assert typed.allowed(np.ones(1), Lift(1.0, 8.0), 0.01) == NO_LIFT
