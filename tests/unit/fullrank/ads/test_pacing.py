"""Which evenly paced ads are refused: those that the budget, asked at every moment, never pays."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from fullrank.ads import Ad, Budget, parse_ad
from fullrank.ads.budget import Budgets
from fullrank.ads.pacing import DAY_S
from fullrank.errors import AdError

MIDNIGHT = datetime.fromisoformat("2026-11-24T00:00:00Z").timestamp()


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def ad_of(price: float, amount: float, daily: float | None, start: float, end: float) -> Any:
    budget = {"amount": amount, "daily": daily, "pacing": "even"}
    times = {"start": start, "end": end}
    given = {name: time_of(at) for name, at in times.items() if math.isfinite(at)}
    return {"adomain": ["a.example"], "price": price, "budget": budget, **given}


def is_ever_paid(
    price: float, amount: float, daily: float | None, start: float, end: float
) -> bool:
    """Ask the budget at moments of the ad's time, also right before it ends and before each midnight."""
    budgets = Budgets(
        [Ad(("a.example",), price=price, start=start, end=end, budget=Budget(amount, daily, True))]
    )
    first = start if math.isfinite(start) else min(end, MIDNIGHT) - 2 * DAY_S
    last = end if math.isfinite(end) else first + 3 * DAY_S
    midnights = np.arange(first // DAY_S, last // DAY_S + 1) * DAY_S
    moments = np.concatenate([np.linspace(first, last, 200), midnights - 0.01, [last - 0.01]])
    for now in moments[(moments >= first) & (moments < last)]:
        in_all, today = budgets.most_spent(float(now))
        if price <= in_all[0] and price <= today[0]:
            return True
    return False


@pytest.mark.sweep
def test_an_evenly_paced_ad_is_refused_if_its_price_is_never_freed() -> None:
    rng, refused, path = random.Random(15), 0, ""
    for _ in range(3000):
        start, end = rng.choice(
            [
                (-math.inf, math.inf),
                (-math.inf, MIDNIGHT + rng.randrange(DAY_S)),
                (MIDNIGHT + rng.randrange(DAY_S), math.inf),
                (MIDNIGHT + rng.randrange(DAY_S), MIDNIGHT + DAY_S),
                (MIDNIGHT - rng.randrange(DAY_S), MIDNIGHT + rng.randrange(1, DAY_S)),
                (MIDNIGHT + rng.randrange(40_000), MIDNIGHT + rng.randrange(40_001, DAY_S)),
            ]
        )
        price = rng.choice([1.0, 2.0, 2.5])
        amount = price * rng.choice([1, 1.3, 2, 20])
        is_bounded = math.isfinite(start) and math.isfinite(end)
        daily = price * rng.choice([1, 1.2, 3, 10])
        asked = (price, amount, None if is_bounded and rng.random() < 0.4 else daily, start, end)
        try:
            parse_ad(ad_of(*asked))
            is_read = True
        except AdError as error:
            is_read, path = False, error.path
        assert is_read == is_ever_paid(*asked), asked
        assert is_read or path in {f"ad.budget.{name}" for name in ("amount", "daily", "pacing")}
        refused += not is_read
    assert 600 < refused < 2400  # neither side is trivial


HOUR = (MIDNIGHT, MIDNIGHT + 3600)


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ((1.0, 100.0, 1.0, -math.inf, math.inf), "daily"),
        ((2.0, 2.0, None, *HOUR), "amount"),
        ((1.0, 100.0, 20.0, *HOUR), "daily"),
        # The day frees the price only just before midnight, when half of the amount is less than the price.
        ((1.0, 1.9, 1.5, MIDNIGHT - 3600, MIDNIGHT + 3600), "pacing"),
    ],
)
def test_the_limit_that_never_frees_the_price_is_named(asked: Any, path: str) -> None:
    with pytest.raises(AdError) as caught:
        parse_ad(ad_of(*asked))
    assert caught.value.path == f"ad.budget.{path}"
    parse_ad(ad_of(asked[0], asked[1] * 90, (asked[2] or 1) * 90, *asked[3:]))
