"""Ads and pages at random, and a slow check of whether one may be on the other, written from the JSON alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fullrank_service.ads.rules import AdRules, PriceFloor, Taxonomy

NOW = datetime.fromisoformat("2026-11-23T12:00:00Z").timestamp()
# Category → parent.
PARENTS = {"11": "1", "12": "1", "111": "11", "112": "11", "1111": "111", "21": "2", "22": "2"}
_CATEGORIES = ["1", "2", "3", *PARENTS]
_DOMAINS = ["a.example", "x.a.example", "b.example", "ba.example", "c.test", "y.x.a.example"]
_SEATS = ["s1", "s2", "s3"]
_TIMES = [
    "2026-11-22T12:00:00+00:00",
    "2026-11-23T13:00:00+02:00",
    "2026-11-23T12:00:00+00:00",
    "2026-11-24T12:00:00-05:00",
    "2026-11-25T12:00:00+00:00",
]
_SECONDS = {text: datetime.fromisoformat(text).timestamp() for text in _TIMES}


def some(rng: random.Random, values: list[Any], most: int = 3) -> list[Any]:
    return rng.sample(values, rng.randint(0, min(most, len(values))))


def random_ad(rng: random.Random) -> dict[str, Any]:
    """Return the JSON of a valid ad."""
    ad: dict[str, Any] = {"adomain": some(rng, _DOMAINS, 2) or [rng.choice(_DOMAINS)]}
    chances: dict[str, Any] = {
        "cat": some(rng, _CATEGORIES),
        "cattax": rng.choice([1, 6, 7, 7]),
        "seat": rng.choice(_SEATS),
        "attr": some(rng, [1, 2, 3, 16]),
        "price": rng.choice([0.5, 1, 2.5]),
        "cur": rng.choice(["EUR", "USD"]),
        "status": rng.choice(["active", "active", "active", "paused"]),
    }
    ad |= {name: value for name, value in chances.items() if rng.random() < 0.7}
    first, last = sorted(rng.sample(range(len(_TIMES)), 2))
    if rng.random() < 0.4:
        ad["start"] = _TIMES[first]
    if rng.random() < 0.4:
        ad["end"] = _TIMES[last]
    return ad


def random_page(rng: random.Random) -> dict[str, Any]:
    """Return the rules of a page with one placement, as /v1/match takes them."""
    page: dict[str, Any] = {"cattax": rng.choice([1, 6, 7, 7])}
    pick = rng.random()
    if pick < 0.4:
        page["bcat"] = some(rng, _CATEGORIES)
    elif pick < 0.7:
        page["acat"] = some(rng, _CATEGORIES, 6) or ["1"]
    if rng.random() < 0.4:
        page["badv"] = some(rng, _DOMAINS, 2)
    pick = rng.random()
    if pick < 0.3:
        page["wseat"] = some(rng, _SEATS) or ["s1"]
    elif pick < 0.5:
        page["bseat"] = some(rng, _SEATS)
    if rng.random() < 0.3:
        page["battr"] = some(rng, [1, 2, 3, 16])
    if rng.random() < 0.3:
        page["bidfloor"] = rng.choice([0.0, 0.5, 0.7, 2.5, 3.0])
    if rng.random() < 0.3:
        page["bidfloorcur"] = rng.choice(["EUR", "USD", "JPY"])
    return page


def rules_of(page: Mapping[str, Any], *, with_tree: bool) -> tuple[AdRules, PriceFloor | None]:
    """Return the rules and the floor of a page as the package takes them."""

    def chosen(name: str) -> frozenset[Any] | None:
        return frozenset(page[name]) if name in page else None

    rules = AdRules(
        chosen("bcat"), chosen("acat"), page["cattax"], chosen("badv") or frozenset(),
        chosen("wseat"), chosen("bseat"), chosen("battr") or frozenset(),
        Taxonomy(7, PARENTS) if with_tree else None,
    )  # fmt: skip
    if "bidfloor" not in page and "bidfloorcur" not in page:
        return rules, None
    return rules, PriceFloor(page.get("bidfloor", 0.0), page.get("bidfloorcur", "USD"))


def is_allowed(ad: Mapping[str, Any], page: Mapping[str, Any], *, with_tree: bool) -> bool:
    """Decide whether an ad may be in the placement of a page, one rule after another."""
    if ad.get("status", "active") != "active":
        return False
    if "start" in ad and _SECONDS[ad["start"]] > NOW:
        return False
    if "end" in ad and _SECONDS[ad["end"]] <= NOW:
        return False
    tree = with_tree and page["cattax"] == 7
    categories = ad.get("cat", [])
    if page.get("bcat") or "acat" in page:
        if categories and ad.get("cattax", 1) != page["cattax"]:
            return False
        for category in categories:
            if set(above(category, tree=tree)) & set(page.get("bcat", [])):
                return False
        if "acat" in page:
            if not categories:
                return False
            for category in categories:
                if not set(above(category, tree=tree)) & set(page["acat"]):
                    return False
    for own in ad["adomain"]:
        for blocked in page.get("badv", []):
            if own == blocked or own.endswith("." + blocked):
                return False
    if "wseat" in page and ad.get("seat") not in page["wseat"]:
        return False
    if ad.get("seat") in page.get("bseat", []):
        return False
    if set(ad.get("attr", [])) & set(page.get("battr", [])):
        return False
    if "bidfloor" in page or "bidfloorcur" in page:
        if ad.get("cur", "USD") != page.get("bidfloorcur", "USD"):
            return False
        if ad.get("price", 0) < page.get("bidfloor", 0):
            return False
    return True


def above(category: str, *, tree: bool) -> list[str]:
    """Return a category and, with the tree, those above it."""
    found = [category]
    while tree and found[-1] in PARENTS:
        found.append(PARENTS[found[-1]])
    return found
