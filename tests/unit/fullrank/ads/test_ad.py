"""One ad: what is read, and what is refused with which path and reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fullrank.ads import Ad, Budget, Cap, has_ended, parse_ad
from fullrank.ads.ad import domains
from fullrank.errors import AdError

WHOLE: dict[str, Any] = {
    "adomain": ["Shop.Example"],
    "cat": ["552"],
    "cattax": 7,
    "cid": "c1",
    "crid": "k7",
    "seat": "s1",
    "attr": [],
    "price": 2.5,
    "cur": "EUR",
    "start": "2026-11-01T00:00:00+01:00",
    "end": "2026-12-01T00:00:00Z",
    "status": "active",
    "budget": {"amount": 500, "daily": 50, "pacing": "even"},
    "cap": {"count": 3, "seconds": 86400},
}


def test_all_fields_are_read() -> None:
    assert parse_ad(WHOLE) == Ad(
        ("shop.example",), ("552",), 7, "c1", "k7", "s1", (), 2.5, "EUR",
        1793487600.0, 1796083200.0, True, Budget(500, 50, True), Cap(3, 86400),
    )  # fmt: skip


def test_defaults_are_those_of_openrtb() -> None:
    ad = parse_ad({"adomain": ["a.example"]})
    assert (ad.cattax, ad.cur, ad.price, ad.is_active) == (1, "USD", 0, True)
    assert (ad.start, ad.end) == (-math.inf, math.inf)
    assert not has_ended(ad, 1e12)


def test_an_ad_ends_at_its_end() -> None:
    ad = parse_ad(WHOLE)
    assert has_ended(ad, ad.end)
    assert not has_ended(ad, ad.end - 1)


def test_domains_are_compared_in_ascii() -> None:
    assert parse_ad({"adomain": ["Bücher.Example."]}).adomain == ("xn--bcher-kva.example",)


LOW = "is less than the price: the ad could never be shown"


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"adomain": None}, "ad.adomain", "is missing: name a domain of the advertiser"),
        ({"adomain": []}, "ad.adomain", "is missing: name a domain of the advertiser"),
        ({"adomain": "a.example"}, "ad.adomain", "is not a list"),
        ({"adomain": ["a b"]}, "ad.adomain.0", "is not a domain, such as shop.example"),
        ({"adomain": ["https://a.example"]}, "ad.adomain.0", "is not a domain, such as shop.example"),
        ({"adomain": ["a.example", 7]}, "ad.adomain.1", "is not text"),
        ({"cat": ["1"] * 65}, "ad.cat", "has more than 64 items"),
        ({"cat": [""]}, "ad.cat.0", "does not have 1 to 256 characters"),
        ({"cattax": 0}, "ad.cattax", "is not a whole number from 1 to 2147483647"),
        ({"attr": [True]}, "ad.attr.0", "is not a whole number from 1 to 2147483647"),
        ({"price": -1}, "ad.price", "is not a number from 0 to 1e15"),
        ({"price": math.nan}, "ad.price", "is not a number from 0 to 1e15"),
        ({"price": "2"}, "ad.price", "is not a number"),
        ({"cur": "eur"}, "ad.cur", "is not a currency code of three capital letters"),
        ({"start": "2026-11-01T00:00:00"}, "ad.start", "has no offset, such as Z or +01:00"),
        ({"start": "2026-11-01"}, "ad.start", "has no offset, such as Z or +01:00"),
        ({"end": "soon"}, "ad.end", "is not a date and time of ISO 8601"),
        ({"end": 1796083200}, "ad.end", "is not a date and time of ISO 8601"),
        ({"end": WHOLE["start"]}, "ad.end", "is not after start"),
        ({"status": "on"}, "ad.status", "is not one of active, paused"),
        ({"status": ["active"]}, "ad.status", "is not one of active, paused"),
        ({"budget": 500}, "ad.budget", "is not an object"),
        ({"budget": {}}, "ad.budget.amount", "is missing"),
        ({"budget": {"amount": 0}}, "ad.budget.amount", LOW),
        ({"budget": {"amount": 9, "daily": 1}}, "ad.budget.daily", LOW),
        ({"price": 0}, "ad.price", "is missing or 0: a budget is spent by the price"),
        ({"budget": {"amount": 9, "pacing": "fast"}}, "ad.budget.pacing", "is not one of even, asap"),
        (
            {"budget": {"amount": 9, "pacing": "even"}, "end": None},
            "ad.budget.pacing",
            "even needs start and end, or a daily budget",
        ),
        ({"budget": {"amount": 9, "total": 9}}, "ad.budget.total", "is unknown; there are amount, daily, pacing"),
        ({"budget": {"amount": 9, "daily": None, "pacing": "even"}, "start": None}, "ad.budget.pacing",
         "even needs start and end, or a daily budget"),
        ({"cap": {"count": 3}}, "ad.cap.seconds", "is missing"),
        ({"cap": {"count": 0, "seconds": 1}}, "ad.cap.count", "is not a whole number from 1 to 2147483647"),
        ({"cap": {"count": 1, "seconds": 10**9}}, "ad.cap.seconds", "is more than 31622400"),
    ],
)  # fmt: skip
def test_a_bad_ad_is_refused_with_its_path_and_reason(
    change: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(AdError) as caught:
        parse_ad(WHOLE | change)
    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_an_unknown_field_is_refused_with_what_there_is() -> None:
    with pytest.raises(AdError, match="is unknown; there are adomain, attr, budget") as caught:
        parse_ad(WHOLE | {"pirce": 2})
    assert caught.value.path == "ad.pirce"


def test_many_domains_are_read_like_one() -> None:
    assert domains(["A.example", "bücher.example"]) == ["a.example", "xn--bcher-kva.example"]
    assert domains(["A.example", "b.example"]) == ["a.example", "b.example"]
    for bad in ("a b", "", "a.example\nb.example", "a" * 64 + ".example", "a.example/"):
        with pytest.raises(ValueError, match="item 1 is not a domain"):
            domains(["a.example", bad])
