"""Places: parameters of InstantSearch.js and its widget of a map, unmodified, from npm."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import asin, cos, radians, sin, sqrt
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.javascript.conftest import TOWNS

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
BERLIN = "52.52, 13.405"


def km(town: str) -> float:
    """How far a town is from Berlin, by the haversine formula."""
    (lat, lon), (north, east) = TOWNS["berlin"], TOWNS[town]
    half = sin(radians(north - lat) / 2) ** 2
    half += cos(radians(lat)) * cos(radians(north)) * sin(radians(east - lon) / 2) ** 2
    return 2 * 6371 * asin(sqrt(half))


def opened(visit: Visit, place: str = "spot", refine: bool = False, **parameters: Any) -> Page:
    """The page of the map, configured with parameters."""
    asked = {
        "place": place,
        "enableRefine": str(refine).lower(),
        "parameters": json.dumps(parameters),
    }
    return visit(f"/tests/javascript/geo.html?{urlencode(asked)}")


def expect_towns(page: Page, towns: list[str]) -> None:
    expect(page.locator(".ais-Hits-item")).to_have_text(towns)


NEAREST = sorted(TOWNS, key=km)


@pytest.mark.parametrize("radius", [50_000, "300000", "all", None])
def test_a_radius_in_metres_limits_what_the_distance_orders(
    visit: Visit, radius: float | str | None
) -> None:
    around: dict[str, Any] = {"aroundLatLng": BERLIN}
    if radius is not None:
        around["aroundRadius"] = radius
    page = opened(visit, **around)
    most = 1e9 if radius in ("all", None) else float(radius)
    expect_towns(page, [town for town in NEAREST if km(town) * 1000 <= most])


@pytest.mark.parametrize("place", ["spot", ""], ids=["object", "text"])
def test_a_map_shows_where_the_hits_are(visit: Visit, place: str) -> None:
    page = opened(visit, place, aroundLatLng=BERLIN, aroundRadius=200_000)
    pins = ["{} {} {}".format(town, *TOWNS[town]) for town in NEAREST if km(town) <= 200]
    assert len(pins) == 3
    expect(page.locator(".ais-GeoSearch-map li")).to_have_text(pins)


def test_without_a_hit_the_map_is_at_the_point(visit: Visit) -> None:
    page = opened(visit, aroundLatLng="0,0", aroundRadius=1)
    expect(page.locator(".ais-Stats-text")).to_contain_text("No results")
    center = page.locator(".ais-GeoSearch-map").get_attribute("data-center")
    assert json.loads(center or "") == {"lat": 0, "lng": 0}


def test_a_sorted_index_is_ordered_by_its_field_first(visit: Visit) -> None:
    page = opened(visit, aroundLatLng=BERLIN)
    page.locator(".ais-SortBy-select").select_option("places:stars:desc")
    expect_towns(page, sorted(TOWNS, key=lambda town: (-len(town), km(town))))


@pytest.mark.parametrize(
    "more",
    [
        {"sort": []},
        {
            "boost": [
                {"field": "spot", "decay": {"origin": {"lat": 52.52, "lon": 13.405}, "scale": 5}}
            ]
        },
    ],
    ids=["relevance", "boost"],
)
def test_relevance_may_count_more_than_distance(visit: Visit, more: dict[str, Any]) -> None:
    page = opened(visit, aroundLatLng=BERLIN, fullrank=more)
    expect_towns(page, sorted(TOWNS) if "sort" in more else NEAREST)
    page.locator(".ais-SearchBox-input").fill("bakery sydney")
    expect(page.locator(".ais-Hits-item").first).to_have_text("sydney")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"insidePolygon": [[1, 2, 3, 4, 5, 6]]}, "insidePolygon: Fullrank finds places by"),
        ({"aroundLatLngViaIP": True}, "Use aroundLatLng"),
        ({"aroundLatLng": BERLIN, "aroundRadius": -5}, 'neither metres nor "all"'),
    ],
)
def test_what_has_no_meaning_is_an_error_that_says_what_has(
    visit: Visit, parameters: dict[str, Any], words: str
) -> None:
    page = opened(visit, **parameters)
    expect(page.locator("#error")).to_contain_text(words)
    expect(page.locator(".ais-Hits-item")).to_have_count(0)


def test_a_map_that_is_dragged_names_what_can_be_used(visit: Visit) -> None:
    page = opened(visit, refine=True, aroundLatLng=BERLIN)
    expect_towns(page, NEAREST)
    page.evaluate("map.drag()")
    error = page.locator("#error")
    expect(error).to_contain_text("insideBoundingBox: Fullrank finds places by their distance")
    expect(error).to_contain_text("enableRefine: false in geoSearch")
    # What is shown stays.
    expect_towns(page, NEAREST)


def test_a_map_without_refinement_may_be_dragged(visit: Visit) -> None:
    page = opened(visit, aroundLatLng=BERLIN)
    expect_towns(page, NEAREST)
    page.evaluate("map.drag()")
    page.locator(".ais-SearchBox-input").fill("prague")
    expect_towns(page, ["prague"])
    expect(page.locator("#error")).to_be_empty()
