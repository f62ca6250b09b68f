"""One ad: what is read, and what is refused with which path and reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fullrank_service.documents.ad import Ad, AdError, domains, has_ended, parse_ad

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
}


def test_all_fields_are_read() -> None:
    assert parse_ad(WHOLE) == Ad(
        ("shop.example",), ("552",), 7, "s1", (), 2.5, "EUR",
        1793487600.0, 1796083200.0, "active",
    )  # fmt: skip


def test_defaults_are_those_of_openrtb() -> None:
    ad = parse_ad({"adomain": ["a.example"]})
    assert (ad.cattax, ad.cur, ad.price, ad.status) == (1, "USD", 0, "active")
    assert (ad.start, ad.end) == (-math.inf, math.inf)
    assert not has_ended(ad, 1e12)


def test_an_ad_ends_at_its_end() -> None:
    ad = parse_ad(WHOLE)
    assert has_ended(ad, ad.end)
    assert not has_ended(ad, ad.end - 1)


def test_domains_are_compared_in_ascii() -> None:
    assert parse_ad({"adomain": ["Bücher.Example."]}).adomain == ("xn--bcher-kva.example",)


GONE = "is no longer a field: an ad server keeps budgets and caps, see docs/guides/ads.md"


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"adomain": None}, "ad.adomain", "Field required"),
        ({"adomain": []}, "ad.adomain", "Tuple should have at least 1 item after validation, not 0"),
        ({"adomain": "a.example"}, "ad.adomain", "Input should be a valid array"),
        ({"adomain": ["a b"]}, "ad.adomain.0", "is not a domain, such as shop.example"),
        ({"adomain": ["https://a.example"]}, "ad.adomain.0", "is not a domain, such as shop.example"),
        ({"adomain": ["a.example", 7]}, "ad.adomain.1", "Input should be a valid string"),
        ({"cat": ["1"] * 65}, "ad.cat", "Tuple should have at most 64 items after validation, not 65"),
        ({"cat": [""]}, "ad.cat.0", "String should have at least 1 character"),
        ({"cattax": 0}, "ad.cattax", "Input should be greater than or equal to 1"),
        ({"attr": [True]}, "ad.attr.0", "Input should be a valid integer"),
        ({"price": -1}, "ad.price", "Input should be greater than or equal to 0"),
        ({"price": math.nan}, "ad.price", "Input should be a valid number"),
        ({"price": "2"}, "ad.price", "Input should be a valid number"),
        ({"cur": "eur"}, "ad.cur", "String should match pattern '^[A-Z]{3}$'"),
        ({"start": "2026-11-01T00:00:00"}, "ad.start", "has no offset, such as Z or +01:00"),
        ({"start": "2026-11-01"}, "ad.start", "has no offset, such as Z or +01:00"),
        ({"end": "soon"}, "ad.end", "is not a date and time of ISO 8601"),
        ({"end": 1796083200}, "ad.end", "is not a date and time of ISO 8601"),
        ({"end": WHOLE["start"]}, "ad.end", "is not after start"),
        ({"status": "on"}, "ad.status", "Input should be 'active' or 'paused'"),
        ({"status": ["active"]}, "ad.status", "Input should be 'active' or 'paused'"),
        ({"budget": {"amount": 5}}, "ad.budget", GONE),
        ({"cap": {"count": 3, "seconds": 60}}, "ad.cap", GONE),
    ],
)  # fmt: skip
def test_a_bad_ad_is_refused_with_its_path_and_reason(
    change: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(AdError) as caught:
        parse_ad(WHOLE | change)
    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_a_stored_ad_may_have_what_release_0_1_had() -> None:
    old = WHOLE | {"budget": {"amount": 5}, "cap": {"count": 3, "seconds": 60}}
    assert parse_ad(old, is_stored=True) == parse_ad(WHOLE)
    with pytest.raises(AdError, match="is unknown"):
        parse_ad(WHOLE | {"pirce": 2}, is_stored=True)


def test_an_unknown_field_is_refused_with_what_there_is() -> None:
    with pytest.raises(AdError, match="is unknown; there are adomain, attr, cat") as caught:
        parse_ad(WHOLE | {"pirce": 2})
    assert caught.value.path == "ad.pirce"


def test_many_domains_are_read_like_one() -> None:
    assert domains(["A.example", "bücher.example"]) == ["a.example", "xn--bcher-kva.example"]
    assert domains(["A.example", "b.example"]) == ["a.example", "b.example"]
    for bad in ("a b", "", "a.example\nb.example", "a" * 64 + ".example", "a.example/"):
        with pytest.raises(ValueError, match="item 1 is not a domain"):
            domains(["a.example", bad])
