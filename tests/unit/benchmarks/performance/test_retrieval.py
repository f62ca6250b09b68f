"""The retrieval benchmark's arithmetic: brute force, rounds, bars, tables."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from benchmarks.performance.retrieval import parser
from benchmarks.performance.retrieval_report import BARS, held, tables
from benchmarks.performance.retrieval_systems import Timed, figures, in_rounds
from benchmarks.performance.truth import (
    Truth,
    brute_force,
    equal,
    mean_recall,
    recall,
    recall_bounds,
)
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Encoded, Rows, concatenate

FILTERED = "curves/share/{}/milliseconds/fast/p50_ms"


def encoded(draw: np.random.Generator, count: int, width: int = 40, n_dense: int = 6) -> Encoded:
    """Random texts; every fifth one is the one before again."""
    dense = draw.normal(size=(count, n_dense)).astype(np.float32)
    rows = [np.sort(draw.choice(width, draw.integers(0, 8), replace=False)) for _ in range(count)]
    bias = draw.normal(size=count).astype(np.float32)
    weights = [draw.uniform(0.1, 2, len(row)).astype(np.float32) for row in rows]
    for i in range(4, count, 5):
        dense[i], rows[i], weights[i], bias[i] = (
            dense[i - 1],
            rows[i - 1],
            weights[i - 1],
            bias[i - 1],
        )
    return Encoded(
        dense,
        Rows(
            np.cumsum([0, *map(len, rows)]).astype(np.int64),
            np.concatenate(rows).astype(np.int32),
            np.concatenate(weights),
            width,
        ),
        bias,
    )


@pytest.fixture
def documents() -> Encoded:
    return encoded(np.random.default_rng(1), 500)


@pytest.fixture
def queries() -> Encoded:
    return encoded(np.random.default_rng(2), 30)


def full_scores(documents: Encoded, queries: Encoded) -> np.ndarray:
    wide = [e.sparse.csr().toarray().astype(np.float64) for e in (queries, documents)]
    dense = [e.dense.astype(np.float64) for e in (queries, documents)]
    return dense[0] @ dense[1].T + wide[0] @ wide[1].T + documents.bias.astype(np.float64)


def test_brute_force_equals_the_full_score(
    documents: Encoded, queries: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.performance.truth._TILE", 64)
    monkeypatch.setattr("benchmarks.performance.truth._BATCH", 7)
    scores = full_scores(documents, queries).round(12)
    for line, truth in zip(scores, brute_force(documents, queries, 20), strict=True):
        order = np.lexsort((np.arange(500), -line))[:20]
        assert truth.rows.tolist() == order.tolist()
        np.testing.assert_allclose(truth.scores, line[order], atol=1e-9)


def test_brute_force_respects_a_filter(documents: Encoded, queries: Encoded) -> None:
    matching = np.arange(500) % 50 == 3
    for truth in brute_force(documents, queries, 20, matching=matching):
        assert sorted(truth.rows.tolist()) == np.flatnonzero(matching).tolist()


def test_exact_retrieval_equals_brute_force(documents: Encoded, queries: Encoded) -> None:
    truths = brute_force(documents, queries, 10)
    rankings = Retriever(documents).search(queries, 10)
    assert all(map(equal, rankings, truths))
    other = Truth(truths[0].rows[::-1], truths[0].scores)
    assert not equal(rankings[0], other)
    assert not equal(rankings[0], Truth(truths[0].rows, truths[0].scores + 1e-6))


def test_recall_counts_the_true_first_documents() -> None:
    truth = Truth(np.array([4, 2, 9]), np.array([3.0, 2.0, 1.0]), np.array([11, 12]))
    assert recall([2, 4, 7], truth, 3) == pytest.approx(2 / 3)
    assert recall([2, 4, 12], truth, 3) == 1
    assert recall([1, 7, 8, 9], truth, 3) == 0
    assert recall([], Truth(np.zeros(0, np.int64), np.zeros(0)), 10) == 1
    one = Truth(np.array([4]), np.array([3.0]))
    answers = [np.array([4]), np.array([5])]
    assert mean_recall(answers, [one, one], 1) == 0.5
    assert recall_bounds(answers, [one, one], 1) == (0, 1)
    # Of 100 queries with a recall of one in half, the mean has a standard error of 0.05.
    low, high = recall_bounds(answers * 50, [one] * 100, 1)
    assert low == pytest.approx(0.402, abs=0.011)
    assert high == pytest.approx(0.598, abs=0.011)


def test_truth_lists_documents_tied_with_the_last() -> None:
    one = encoded(np.random.default_rng(3), 5).slice(3, 4)
    same = concatenate([one] * 6)
    truth = brute_force(same, one, 2)[0]
    assert (truth.rows.tolist(), truth.tied.tolist()) == ([0, 1], [2, 3, 4, 5])


def test_ratio_is_the_median_over_rounds() -> None:
    slow = np.array([2.0, 2, 9, 9, 4, 4, 100])
    timed: Timed[int] = Timed({"slow": slow, "quick": np.ones(7)}, {}, 2)
    assert timed.ratio("slow", "quick") == {"median": 4, "q25": 3, "q75": 6.5}
    assert timed.ratio("slow", "absent") is None
    alone: Timed[int] = Timed({"slow": slow[:1], "quick": np.ones(1)}, {}, 2)
    assert alone.ratio("slow", "quick") == {"median": 2, "q25": 2, "q75": 2}


def test_figures_are_percentiles_and_throughput() -> None:
    found = figures(np.array([0.001, 0.003, 0.002]))
    assert found == {"p50_ms": 2.0, "p99_ms": 2.98, "queries_per_second": 500.0}


def test_all_systems_answer_all_queries_in_turn() -> None:
    asked: list[tuple[str, int]] = []

    def system(name: str) -> Any:
        def answer(query: int) -> str:
            asked.append((name, query))
            return f"{name}{query}"

        return answer

    done: list[int] = []
    timed = in_rounds(
        {"a": system("a"), "b": system("b")}, [1, 2, 3], [0], size=2, advance=done.append
    )
    rounds = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("a", 3)]
    assert asked == [("a", 0), ("b", 0), *rounds]
    assert timed.answers == {"a": ["a1", "a2", "a3"], "b": ["b1", "b2", "b3"]}
    assert done == [2, 1]
    assert all(len(seconds) == 3 and seconds.min() > 0 for seconds in timed.seconds.values())


def test_invalid_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["--sizes", "debian,2000"]).sizes == ["debian", "2000"]
    with pytest.raises(SystemExit):
        parser().parse_args(["--sizes", "12"])
    assert "must be debian or" in capsys.readouterr().err


def corpus(name: str, documents: int, **more: Any) -> dict[str, Any]:
    """Figures as the benchmark finds them."""
    systems = ("exact", "fast", "flat", "hnsw", "bm25s", "bm25s, numpy")
    ms = {s: {"p50_ms": 2.0, "p99_ms": 3.0, "queries_per_second": 500.0} for s in systems}
    recalls = dict.fromkeys(systems, 0.5)
    point = {
        "milliseconds": ms,
        "recall": recalls,
        "certified_share": 1.0,
        "equal_to_brute_force": 1.0,
    }
    ratio = {"median": 1.0, "q25": 0.9, "q75": 1.1}
    names = ("exact_over_flat_scan", "fast_speedup_over_exact", "fast_over_bm25s")
    return {
        "corpus": name,
        "documents": documents,
        "built": {"documents": documents, "seconds": 9.5, "cores": 2, "peak_resident_gb": 1.5},
        "terms_a_document": 60.0,
        "bytes_per_document": 1234.5,
        "memory": {
            "proportional_set_gb": 1.5,
            "of_their_own_gb": 0.4,
            "open_s": 0.2,
            "first_answers_s": {"exact": 0.1},
        },
        "exact_over_flat_scan": 0.3,
        "flat_scan_over_fast": 31.0,
        "certified_share": 1.0,
        "equal_to_brute_force": 1.0,
        "fast_speedup_over_exact": 16.0,
        "fast_recall_at_10": 0.995,
        "fast_recall_at_10_low": 0.991,
        "fast_recall_at_10_high": 0.998,
        "fast_over_bm25s": 0.9,
        "ratios": {**dict.fromkeys(names, ratio), "fast_over_hnsw": None},
        "milliseconds": ms,
        "recall_at_10": recalls,
        "hnsw": {"efSearch": 64, "recall_of_dense_top_10": 0.96},
        "curves": {
            "share": {
                share: {**copy.deepcopy(point), "filter_ms": 0.5} for share in ("0.01", "0.1", "1")
            }
        },
        **more,
    }


def measured(changed: str = "", key: str = "", value: Any = None) -> dict[str, Any]:
    """Return figures of three sizes that hold every bar but for one figure of one size."""
    found = {str(size): corpus(str(size), size) for size in (10_000, 63_000, 10**6)}
    if changed:
        *path, last = key.split("/")
        place = found[changed]
        for own in path:
            place = place[own]
        place[last] = value
    return found


def test_bars_compare_figures_with_limits() -> None:
    good = held(measured())
    assert good["all"]
    assert good["documents"] == 10**6
    assert len(good["bars"]) == len(BARS)


@pytest.mark.parametrize(
    ("bar", "size", "key", "value"),
    [
        ("exact at most 0.40", "1000000", "exact_over_flat_scan", 0.41),
        ("exact at most 1.5", "10000", "exact_over_flat_scan", 1.51),
        ("100 % of exact answers certified", "10000", "certified_share", 0.999),
        ("100 % of exact answers equal", "63000", "equal_to_brute_force", 0.999),
        ("one FAISS IndexFlatIP scan", "1000000", "flat_scan_over_fast", 29.9),
        ("exact at least 15", "1000000", "fast_speedup_over_exact", 14.9),
        ("recall@10", "63000", "fast_recall_at_10_low", 0.9899),
        ("fast at most 1.5", "63000", "fast_over_bm25s", 1.51),
        ("fast with a filter that 1 %", "1000000", FILTERED.format("0.01"), 3.1),
        ("fast with a filter that 10 %", "1000000", FILTERED.format("0.1"), 3.1),
        ("four workers", "1000000", "memory/proportional_set_gb", 1.51),
        ("the bundle opens", "1000000", "memory/open_s", 1.01),
        # What was not measured does not hold.
        ("recall@10", "63000", "fast_recall_at_10_low", None),
        ("100 % of exact answers certified", "10000", "certified_share", None),
        ("one FAISS IndexFlatIP scan", "1000000", "flat_scan_over_fast", None),
    ],
)
def test_a_figure_beyond_its_limit_misses_its_bar_alone(
    bar: str, size: str, key: str, value: float | None
) -> None:
    made = held(measured(size, key, value))
    assert not made["all"]
    (missed,) = [own["bar"] for own in made["bars"] if not own["held"]]
    assert missed.startswith(bar)


def test_the_largest_corpus_is_a_resampled_one() -> None:
    found = {"debian": corpus("debian", 10**7, exact_over_flat_scan=9.0), **measured()}
    assert held(found)["all"]
    assert held(found)["documents"] == 10**6
    assert held({"debian": corpus("debian", 63_435)})["documents"] == 63_435


def test_bars_of_sizes_that_were_not_asked_for_are_left_out() -> None:
    found = held({"1000000": corpus("1000000", 10**6)})
    assert found["all"]
    assert len(BARS) - len(found["bars"]) == 2


def test_tables_are_complete() -> None:
    corpora = {name: corpus(name, int(name)) for name in ("2000", "10000")}
    made = tables(corpora, held(corpora))
    json.dumps([table.as_dict() for table in made])
    for table in made:
        assert all(len(row) == len(table.headings) for row in table.rows)
        assert table.markdown()
