"""Counts of random reports against a plain model of the rules; several connections share a file."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from fullrank_service.ads.counts import CLICK, IMPRESSION, Counts, CountsError, Report
from fullrank_service.ads.tokens import LIFETIME_S, Served


def served(number: int, ad: str, at: float) -> Served:
    return Served(f"{number:032x}", at + LIFETIME_S, "ads", "m1", "", ad, 1.0, 2.0, "top")


class Model:
    """The rules, one after another, over all that was ever counted."""

    def __init__(self) -> None:
        self.counted: list[tuple[Report, str]] = []

    def count(self, report: Report) -> str:
        own = [r.kind for r, _ in self.counted if r.served.id == report.served.id]
        if report.at >= report.served.expires:
            return "expired"
        if report.kind == CLICK and IMPRESSION not in own:
            return "no_impression"
        if report.kind in own:
            return "repeated"
        ages = [
            report.at - r.at
            for r, _ in self.counted
            if r.client == report.client
            and r.kind == report.kind
            and (report.kind == CLICK or r.served.ad == report.served.ad)
        ]
        for seconds, most in ((60, 1), (3600, 10), (86_400, 25)):
            if sum(age < seconds for age in ages) >= most:
                return "over_limit"
        self.counted.append((report, report.kind))
        return report.kind


@pytest.mark.parametrize(("seed", "pause"), [(1, 20.0), (2, 100.0), (3, 500.0), (4, 2500.0)])
def test_results_are_those_of_the_model(tmp_path: Path, seed: int, pause: float) -> None:
    rng = random.Random(seed)
    files = [Counts(tmp_path / "ads.sqlite") for _ in range(3)]
    model, now, tokens = Model(), 1e9, list[Served]()
    results = Counter[str]()
    for _ in range(150):
        reports = []
        for _ in range(rng.randint(1, 4)):
            now += rng.expovariate(1 / pause)
            if not tokens or rng.random() < 0.4:
                tokens.append(served(len(tokens), rng.choice("ab"), now))
            token = rng.choice(tokens[-12:])
            kind = rng.choice([IMPRESSION, CLICK])
            reports.append(Report(kind, token, rng.choice("xy"), now))
        found = rng.choice(files).count(reports)
        assert found == [model.count(report) for report in reports]
        results.update(found)
    assert {IMPRESSION, CLICK, "repeated", "no_impression"} <= set(results)
    assert results["over_limit"] or pause > 1000
    assert results["expired"] or pause < 500
    expected = {
        ad: tuple(
            sum(r.served.ad == ad and r.kind == kind for r, _ in model.counted)
            for kind in (IMPRESSION, CLICK)
        )
        for ad in "ab"
    }
    assert files[0].sums("ads") == expected
    assert files[0].sums("other") == {}
    for file in files:
        file.close()


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    report = Report(IMPRESSION, served(1, "a", 0.0), "x", 0.0)
    with pytest.raises(CountsError):
        Counts(tmp_path / "missing" / "ads.sqlite").count([report])
    path = tmp_path / "ads.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(CountsError, match=r"ads\.sqlite"):
        Counts(path).count([report])
