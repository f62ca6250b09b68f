"""What became of served ads: kept by model, score and placement, without people, for some days."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from fullrank_service.ads import outcomes
from fullrank_service.ads.calibrations import MIN_CLICKS, Calibrations
from fullrank_service.ads.counts import CLICK, FILE, IMPRESSION, Counts, Report
from fullrank_service.ads.outcomes import rounded
from fullrank_service.ads.tokens import LIFETIME_S, Served

DAY = 86_400
START = 20_000.0 * DAY


def serve(
    counts: Counts,
    number: int,
    score: float,
    *,
    at: float = START,
    model: str = "m1",
    placement: str = "top",
    clicked: bool = False,
) -> None:
    """Count an impression of a new token by a new person, and perhaps a click."""
    served = Served(
        f"{number:032x}", at + LIFETIME_S, "ads", model, "p", "a", 1.0, score, placement
    )
    kinds = [IMPRESSION, CLICK] if clicked else [IMPRESSION]
    reports = [Report(kind, served, f"c{number}", at + 1) for kind in kinds]
    assert counts.count(reports) == kinds


def test_outcomes_are_those_of_a_plain_count(tmp_path: Path) -> None:
    rng, counts = random.Random(2), Counts(tmp_path / FILE)
    shown, clicked = Counter[tuple[str, float]](), Counter[tuple[str, float]]()
    for number in range(300):
        score, model = rng.choice([1.5, 2.0, -3.25, 0.0]), rng.choice(["m1", "m2"])
        placement, is_clicked = rng.choice(["top", "side"]), rng.random() < 0.3
        at = START + rng.random() * 5 * DAY
        serve(counts, number, score, at=at, model=model, placement=placement, clicked=is_clicked)
        if model == "m1":
            shown[placement, score] += 1
            clicked[placement, score] += is_clicked
    found = counts.outcomes(("ads", "m1"))
    assert len(counts.outcomes(("ads", "other")).placements) == 0
    keys = list(zip(found.placements, found.scores.tolist(), strict=True))
    assert keys == sorted(shown)
    assert found.impressions.tolist() == [shown[key] for key in keys]
    assert found.clicks.tolist() == [clicked[key] for key in keys]
    assert counts.clicks()["ads", "m1"] == sum(clicked.values())
    counts.close()


def test_an_over_budget_click_is_still_a_click(tmp_path: Path) -> None:
    counts = Counts(tmp_path / FILE)
    served = Served("ab" * 16, START + LIFETIME_S, "ads", "m1", "", "a", 1.0, 2.0, "top")
    reports = [Report(kind, served, "c", START, most=0.5) for kind in (IMPRESSION, CLICK, CLICK)]
    assert counts.count(reports) == [IMPRESSION, "over_budget", "repeated"]
    assert counts.outcomes(("ads", "m1")).clicks.tolist() == [1]
    counts.close()


def test_nobody_can_be_found_in_outcomes(tmp_path: Path) -> None:
    counts = Counts(tmp_path / FILE)
    serve(counts, 1, 2.0)
    counts.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        names = [row[1] for row in file.execute("PRAGMA table_info(outcomes)")]
    assert names == ["collection", "model", "placement", "day", "score", "impressions", "clicks"]


def test_old_outcomes_and_those_beyond_the_bound_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "MAX_ROWS", 5)
    counts = Counts(tmp_path / FILE, days=2)
    for day in range(4):
        serve(counts, day, 1.0, at=START + day * DAY, clicked=True)
    # Days 1, 2 and 3 are left.
    assert counts.outcomes(("ads", "m1")).impressions.tolist() == [3]
    for number in range(10, 20):
        serve(counts, number, float(number), at=START + 3 * DAY + 100 * number)
    scores = counts.outcomes(("ads", "m1")).scores.tolist()
    assert len(scores) <= 6  # the removal runs before the last insert or once a minute
    assert scores[-1] == 19
    counts.close()


@pytest.mark.parametrize("score", [1.0, -1.0, 0.0, 3.14159, 1e-9, 123456.789, -0.3])
def test_rounded_scores_are_close(score: float) -> None:
    assert rounded(score) == pytest.approx(score, rel=0.004, abs=0)
    assert rounded(rounded(score)) == rounded(score)


def test_workers_share_a_calibration_that_follows_the_clicks(tmp_path: Path) -> None:
    rng, counts = random.Random(5), Counts(tmp_path / FILE)
    path = tmp_path / FILE
    now = time.time()

    def served(number: int, model: str, count: int) -> None:
        reports = []
        for i in range(number, number + count):
            score = rng.choice([1.0, 2.0])
            token = Served(f"{i:032x}", now + LIFETIME_S, "ads", model, "", "a", 1.0, score, "top")
            kinds = [IMPRESSION, CLICK] if rng.random() < score / 4 else [IMPRESSION]
            reports += [Report(kind, token, f"c{i}", now) for kind in kinds]
        counts.count(reports)

    served(0, "m1", 4 * MIN_CLICKS)
    served(10_000, "few", 2 * MIN_CLICKS)
    workers = [Calibrations(lambda: Counts(path), poll_s=0.02) for _ in range(2)]
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end and any(one.of("ads", "m1") is None for one in workers):
            time.sleep(0.01)
        time.sleep(0.1)
        first, second = (one.of("ads", "m1") for one in workers)
        assert first is not None
        assert first == second
        assert first.probability(2.0, "top") == pytest.approx(0.5, abs=0.03)
        assert first.probability(1.0, "top") == pytest.approx(0.25, abs=0.03)
        assert workers[0].of("ads", "few") is None
        assert 0 < workers[0].clicks("ads", "few") < MIN_CLICKS
        assert workers[0].of("ads", "unknown") is None
    finally:
        for one in workers:
            one.close()
        counts.close()
