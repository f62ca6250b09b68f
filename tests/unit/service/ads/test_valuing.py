"""Pages ranked by value against a walk over the whole ranking, and the revenue of planted clicks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fullrank.live import View
from fullrank.storage.documents import Document
from fullrank_service.ads import placing
from fullrank_service.ads.filling import PageFilling
from fullrank_service.ads.placing import Placed, Slot
from fullrank_service.ads.rules import AdRules, PriceFloor
from fullrank_service.completion.calibrations import Calibration, fit
from tests.bundles import linear_model
from tests.live import bundle_of
from tests.unit.service.ads.oracle import NOW, is_allowed, random_page, rules_of
from tests.unit.service.ads.test_filling import WORDS, fill, random_view

CURVE = Calibration(1.0, 0.5, -1.0, 0.8, {"p0": 0.5, "p1": -0.7}, 1, 1)
FALLING = Calibration(1.0, 0.5, -1.0, -0.8, {}, 1, 1)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def planted(score: float, placement: str, curve: Calibration = CURVE) -> float:
    """Return the probability of a click, written a second time."""
    z = (score - curve.mean) / curve.deviation
    return sigmoid(curve.intercept + curve.slope * z + curve.offsets.get(placement, 0.0))


def slowly_valued(
    ranking: Sequence[tuple[str, float]],
    stored: Mapping[str, Mapping[str, Any]],
    slots: Sequence[tuple[Slot, Mapping[str, Any]]],
    per_advertiser: int,
    curve: Calibration,
) -> list[list[str]]:
    """For each free place look at all documents for the largest value."""
    used, placed_of, result = set[str](), Counter[str](), []
    for slot, page in slots:
        here: list[str] = []
        while len(here) < slot.count:
            best: tuple[float, float, str] | None = None
            for id, score in ranking:
                ad = stored[id].get("ad")
                if id in used or (slot.min_score is not None and score < slot.min_score):
                    continue
                value = 0.0
                if ad is not None:
                    if not is_allowed(ad, page, with_tree=False):
                        continue
                    if any(placed_of[domain] >= per_advertiser for domain in ad["adomain"]):
                        continue
                    value = ad.get("price", 0) * curve.probability(score, slot.id)
                key = (-value, -score, id)
                best = key if best is None else min(best, key)
            if best is None:
                break
            here.append(best[2])
            used.add(best[2])
            placed_of.update(set((stored[best[2]].get("ad") or {"adomain": []})["adomain"]))
        result.append(here)
    return result


@pytest.mark.parametrize("curve", [CURVE, FALLING], ids=["rising", "falling"])
@pytest.mark.parametrize(("first", "factor"), [(100, 4), (1, 2)])
def test_pages_are_those_of_the_walk(
    monkeypatch: pytest.MonkeyPatch, curve: Calibration, first: int, factor: int
) -> None:
    monkeypatch.setattr(placing, "FIRST", first)
    monkeypatch.setattr(placing, "FACTOR", factor)
    rng = random.Random(11)
    view, stored = random_view(rng)
    for _ in range(40):
        query = " ".join(rng.choices(WORDS, k=2))
        encoded = view.model.encode_queries([query])
        ranking = [(hit.id, hit.score) for hit in view.search(encoded, 1000).hits]
        page = {k: v for k, v in random_page(rng).items() if not k.startswith("bidfloor")}
        slots: list[tuple[Slot, dict[str, Any]]] = []
        for number in range(rng.randint(1, 3)):
            price = rng.choice([None, 1.0])
            own = page if price is None else page | {"bidfloor": price, "bidfloorcur": "EUR"}
            floor = None if price is None else PriceFloor(price, "EUR")
            least = rng.choice([None, None, rng.choice(ranking)[1]])
            slots.append((Slot(rng.randint(1, 6), floor, least, f"p{number}"), own))
        per = rng.choice([1, 2, 30])
        filling = PageFilling(
            [slot for slot, _ in slots], rules_of(page, with_tree=False)[0], NOW, per,
            calibration=curve,
        )  # fmt: skip
        found = fill(view, filling, query)
        ids = iter([hit.id for hit in found.hits.hits])
        placed = [[next(ids) for _ in range(count)] for count in found.counts]
        assert placed == slowly_valued(ranking, stored, slots, per, curve)
        assert found.hits.certified
        places = [
            slot.id for (slot, _), n in zip(slots, found.counts, strict=True) for _ in range(n)
        ]
        for one, ad, place in zip(found.values, found.ads, places, strict=True):
            price = 0.0 if ad is None else ad.price
            probability = 0.0 if ad is None else planted(one.hit.score, place, curve)
            assert (one.price, one.probability) == pytest.approx((price, probability))
            assert one.value == pytest.approx(price * probability)


def test_a_ranking_that_is_not_read_to_its_end_is_not_certified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("FIRST", 2), ("MOST", 2)):
        monkeypatch.setattr(placing, name, value)
    view, _ = random_view(random.Random(1))
    slots = [Slot(3, id="p0")]
    found = fill(view, PageFilling(slots, AdRules(), NOW, calibration=FALLING), "copy")
    assert not found.hits.certified


def market(rng: random.Random) -> View:
    """Return ads of many advertisers, whose prices say nothing about their texts."""
    stored = {
        f"d{i:03}": {
            "title": rng.choice(WORDS),
            "text": " ".join(rng.choices(WORDS, k=rng.randint(2, 8))),
            "ad": {"adomain": [f"a{i}.example"], "price": round(rng.lognormvariate(0, 0.8), 2)},
        }
        for i in range(80)
    }
    model = linear_model([Document(id, fields) for id, fields in stored.items()])
    return View.of(bundle_of(model, stored))


def test_ranking_by_value_gains_revenue_from_planted_clicks() -> None:
    rng = random.Random(8)
    view, slots = market(rng), [Slot(1, id="top"), Slot(2, id="side")]
    by_score = PageFilling(slots, AdRules(), NOW)
    queries = [" ".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(400)]
    truth = Calibration(2.0, 1.0, -2.0, 1.2, {"top": 0.8, "side": -0.4}, 1, 1)

    def shown(found: Placed) -> list[tuple[float, float, str]]:
        places = [s.id for s, n in zip(slots, found.counts, strict=True) for _ in range(n)]
        prices = [0.0 if ad is None else ad.price for ad in found.ads]
        scores = [hit.score for hit in found.hits.hits]
        return list(zip(prices, scores, places, strict=True))

    # Pages by relevance, and who clicks there.
    groups = Counter[tuple[str, float]]()
    clicks = Counter[tuple[str, float]]()
    for query in queries:
        for _, score, place in shown(fill(view, by_score, query)):
            for _ in range(20):
                groups[place, score] += 1
                clicks[place, score] += rng.random() < planted(score, place, truth)
    assert sum(clicks.values()) > 1000
    keys = sorted(groups)
    fitted = fit(
        [place for place, _ in keys],
        np.array([score for _, score in keys]),
        np.array([groups[key] for key in keys], np.float64),
        np.array([clicks[key] for key in keys], np.float64),
    )

    def revenue(filling: PageFilling) -> float:
        """Return what pages earn, by the planted probabilities."""
        return sum(
            price * planted(score, place, truth)
            for query in queries
            for price, score, place in shown(fill(view, filling, query))
        )

    def valued(curve: Calibration) -> PageFilling:
        return PageFilling(slots, AdRules(), NOW, calibration=curve)

    relevance, value, best = revenue(by_score), revenue(valued(fitted)), revenue(valued(truth))
    assert value > 1.2 * relevance
    assert value > 0.98 * best
