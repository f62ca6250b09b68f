"""Findings: who is better, by what rule, on which queries."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiments.claims import STATEMENTS, compare, findings_table
from benchmarks.experiments.papers import summarise
from benchmarks.harness.store import Result


def result(values: list[float], measure: str = "map") -> Result:
    return Result({}, [f"q{i}" for i in range(len(values))], {measure: np.array(values)})


RESULTS = {
    "good": result([0.9, 0.8, 0.9, 0.7]),
    "bad": result([0.2, 0.1, 0.3, 0.1]),
    "near": result([0.9, 0.8, 0.7, 0.9]),
    "elsewhere": Result({}, ["x"], {"map": np.array([1.0])}),
}


@pytest.mark.parametrize(
    ("better", "worse", "rule", "margin", "verdict"),
    [
        ("good", "bad", "beats", 0.0, "reproduced"),
        ("bad", "good", "beats", 0.0, "not reproduced"),
        ("good", "near", "beats", 0.0, "not reproduced"),
        ("good", "near", "equals", 0.0, "reproduced"),
        ("bad", "good", "equals", 0.0, "not reproduced"),
        ("bad", "good", "equals", 0.7, "reproduced"),
        ("good", "near", "alike", 0.0, "reproduced"),
        ("good", "bad", "alike", 0.0, "not reproduced"),
        ("good", "bad", "alike", 0.7, "reproduced"),
        ("good", "nobody", "beats", 0.0, "not tested"),
        ("good", "elsewhere", "beats", 0.0, "not tested"),
    ],
)
def test_verdicts_follow_the_two_standard_error_rules(
    better: str, worse: str, rule: str, margin: float, verdict: str
) -> None:
    found = compare("cfh-all", "here", RESULTS, better, worse, "map", rule=rule, margin=margin)
    assert found["verdict"] == verdict


def test_a_loss_is_better_when_lower() -> None:
    results = {"a": result([0.1, 0.2, 0.1], "rank_loss"), "b": result([0.6, 0.7, 0.5], "rank_loss")}
    found = compare("htr", "here", results, "a", "b", "rank_loss")
    assert found["verdict"] == "reproduced"
    assert found["difference"]["mean"] == pytest.approx(1.4 / 3)
    assert "the other way round" in compare("htr", "here", results, "b", "a", "rank_loss")["note"]


def test_an_unknown_statement_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        compare("nonsense", "here", RESULTS, "good", "bad", "map")


def test_the_summary_has_every_statement_once() -> None:
    found = [
        {"experiment": "one", **compare("cfh-all", "x", RESULTS, *pair, "map")}
        for pair in (("good", "bad"), ("bad", "good"), ("good", "nobody"))
    ]
    found.append({"experiment": "two", **compare("htr", "x", RESULTS, "bad", "good", "map")})
    lines = {line["claim"]: line for line in summarise(found)}
    assert list(lines) == list(STATEMENTS)
    assert (lines["cfh-all"]["verdict"], lines["cfh-all"]["reproduced"]) == ("in part", 1)
    assert lines["cfh-all"]["tests"] == 2
    assert lines["htr"]["verdict"] == "not reproduced"
    assert lines["data"]["verdict"] == "not tested"
    table = findings_table(found)
    assert len(table.rows) == 3
    assert any("nobody" in note for note in table.notes)
    assert table.markdown().count("\n| ") == 3 + 2
