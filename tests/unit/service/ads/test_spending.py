"""Budgets: what was spent never exceeds what the pace allows, by many writers, and the copy in memory agrees."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fullrank.ads import parse_ad
from fullrank.ads.budget import Budgets, most_spent
from fullrank.live import Operation, View
from fullrank.storage.documents import Document
from fullrank_service.ads.counts import CLICK, IMPRESSION, Counts, Report
from fullrank_service.ads.spending import Spending
from fullrank_service.ads.tokens import LIFETIME_S, Served
from tests.bundles import linear_model
from tests.live import bundle_of

DAY = 86_400
START = 1_793_491_200.0  # midnight in UTC: 2026-11-01
AD: dict[str, Any] = {"adomain": ["a.example"], "price": 0.3, "cur": "EUR"}


def ad_with(**budget: Any) -> dict[str, Any]:
    return AD | {
        "start": "2026-11-01T00:00:00Z",
        "end": "2026-11-11T00:00:00Z",
        "budget": budget,
    }


@pytest.mark.parametrize(
    ("budget", "days", "most", "today"),
    [
        ({"amount": 10}, 5.0, 10, float("inf")),
        ({"amount": 10, "daily": 2}, 5.25, 10, 2),
        ({"amount": 10, "pacing": "even"}, 2.5, 2.5, float("inf")),
        ({"amount": 10, "pacing": "even"}, 20, 10, float("inf")),
        ({"amount": 10, "pacing": "even"}, -1, 0, float("inf")),
        ({"amount": 10, "daily": 2, "pacing": "even"}, 2.25, 2.25, 0.5),
    ],
)
def test_what_may_be_spent_follows_the_time(
    budget: dict[str, Any], days: float, most: float, today: float
) -> None:
    ad, now = parse_ad(ad_with(**budget)), START + days * DAY
    assert most_spent(ad, now) == pytest.approx((most, today))
    amounts, daily = Budgets([ad, parse_ad(ad_with(amount=7)), ad]).most_spent(now)
    assert amounts.tolist() == pytest.approx([most, 7, most])
    assert daily[0] == daily[2] == pytest.approx(today)


def clicked(
    counts: Counts, number: int, at: float, most: tuple[float, float], ad: str = "d0"
) -> str:
    """Count an impression and a click of a new token by a new client."""
    served = Served(f"{number:032x}", at + LIFETIME_S, "live", "m1", "", ad, 0.3, 1.0, "top")
    client = f"c{number}"
    reports = [Report(kind, served, client, at, *most) for kind in (IMPRESSION, CLICK)]
    first, second = counts.count(reports)
    assert first == IMPRESSION
    return second


def test_a_paced_budget_is_never_overspent_by_eight_writers(tmp_path: Path) -> None:
    ad = parse_ad(ad_with(amount=20, daily=3, pacing="even"))
    moments = [START + day * DAY / 10 for day in range(1, 41)]
    results: list[str] = []

    def write(worker: int) -> None:
        counts = Counts(tmp_path / "ads.sqlite")
        for turn, at in enumerate(moments):
            number = worker * 1000 + turn
            results.append(clicked(counts, number, at, most_spent(ad, at)))
        counts.close()

    threads = [threading.Thread(target=write, args=[worker]) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counts(tmp_path / "ads.sqlite")
    [spent] = counts.spent_after(0)
    counts.close()
    assert spent.total == pytest.approx(0.3 * results.count(CLICK))
    assert set(results) == {CLICK, "over_budget"}
    assert spent.total <= most_spent(ad, moments[-1])[0] + 1e-9
    # All of the clicks came early enough to use nearly all of it.
    assert spent.total > 0.5 * most_spent(ad, moments[-1])[0]


def test_each_moment_keeps_its_pace(tmp_path: Path) -> None:
    rng = random.Random(4)
    ad = parse_ad(ad_with(amount=20, daily=4, pacing="even"))
    counts, now, of_day = Counts(tmp_path / "ads.sqlite"), START, dict[int, float]()
    for number in range(400):
        now += rng.expovariate(1 / 2500)
        most, today = most_spent(ad, now)
        if clicked(counts, number, now, (most, today)) == CLICK:
            day = int(now // DAY)
            of_day[day] = of_day.get(day, 0.0) + 0.3
            assert of_day[day] <= today + 1e-6
        assert sum(of_day.values()) <= most + 1e-6
    [spent] = counts.spent_after(0)
    counts.close()
    assert spent.total == pytest.approx(sum(of_day.values()))
    assert spent.today == pytest.approx(of_day[int(spent.day)])
    assert spent.total > 10


def test_the_copy_in_memory_follows_the_file(tmp_path: Path) -> None:
    stored = {f"d{i}": {"title": "copy", "ad": ad_with(amount=1)} for i in range(3)}
    stored["d3"] = {"title": "copy", "ad": AD}
    model = linear_model([Document(id, {"title": "copy", "text": ""}) for id in stored])
    view = View.of(bundle_of(model, stored))
    view = view.apply([Operation(1, "d4", {"title": "copy", "ad": ad_with(amount=0.5)})])
    counts = Counts(tmp_path / "ads.sqlite")
    spending = Spending(lambda: Counts(tmp_path / "ads.sqlite"), 0.01)
    now = START + DAY
    for number, ad in enumerate(["d1", "d1", "d1", "d0", "d4", "d3"]):
        assert clicked(counts, number, now, (99, 99), ad) == CLICK
    base, segment = view.parts
    expected = [False, True, False, False]
    end = time.monotonic() + 10
    while True:
        over, live = spending.over("live", base, now), spending.over("live", segment, now)
        assert over is not None
        assert live is not None
        if (over.tolist(), live.tolist()) == (expected, [True]) or time.monotonic() > end:
            break
        time.sleep(0.01)
    assert (over.tolist(), live.tolist()) == (expected, [True])
    other = spending.over("other", base, now)
    assert other is not None
    spending.close()
    counts.close()


def test_caps_count_impressions_until_they_expire(tmp_path: Path) -> None:
    counts = Counts(tmp_path / "ads.sqlite")

    def seen(person: str, collection: str, now: float) -> dict[str, int]:
        return Counter(one.ad for one in counts.seen(person, collection, now))

    for number, (at, before) in enumerate([(0.0, {}), (70.0, {"d0": 1}), (410.0, {"d0": 1})]):
        assert seen("p", "live", at) == before
        served = Served(f"{number:032x}", at + LIFETIME_S, "live", "m1", "p", "d0", 0.3, 1.0, "top")
        report = Report(IMPRESSION, served, "p", at, cap_s=400)
        assert counts.count([report]) == [IMPRESSION]
    assert seen("p", "live", 411.0) == {"d0": 2}
    assert seen("p", "live", 471.0) == {"d0": 1}
    assert seen("q", "live", 411.0) == {}
    assert seen("p", "other", 411.0) == {}
    counts.close()
