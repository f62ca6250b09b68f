"""Filters, ranges, times and facets match the same documents as plain Python over their fields."""

from __future__ import annotations

import math
import operator
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fullrank.errors import FilterError, QueryError
from fullrank.filters.columns import aligned, columns_of
from fullrank.filters.columns.table import Point, dictionary, largest, scale_of, time_of
from fullrank.filters.facets import Range, facet_over, range_counts
from fullrank.filters.query import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES,
    constant,
    matching,
    parse_filter,
)
from fullrank.search.ordering import Boost, Decay, SortKey, boosts_of, sort_values
from tests.random_cases import cases
from tests.stored_fields import FIELDS, documents, keywords, kind_of, numbers, scalars, values_of

COMPARED = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def matches_document(asked: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether one document matches, in plain Python."""
    return all(_member(key, value, document) for key, value in asked.items())


def _member(key: str, value: Any, document: dict[str, Any]) -> bool:
    if key == "and":
        return all(matches_document(part, document) for part in value)
    if key == "or":
        return any(matches_document(part, document) for part in value)
    if key == "not":
        return not matches_document(value, document)
    values = values_of(document, key)
    if not isinstance(value, dict):
        value = {"in": [value]}
    bounds = {name: bound for name, bound in value.items() if name in COMPARED}
    found = True
    if "in" in value:
        asked = {(kind_of(v), v) for v in value["in"]}
        found = any((kind_of(v), v) in asked for v in values)
    if "exists" in value:
        found = found and bool(values) == value["exists"]
    if bounds:
        found = found and any(
            all(kind_of(v) == kind_of(b) and COMPARED[o](v, b) for o, b in bounds.items())
            for v in values
        )
    return found


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, Any]:
    values = draw(st.sampled_from([keywords, numbers]))
    chosen = draw(st.sampled_from([("gt", "lt"), ("gte", "lt"), ("gt", "lte"), ("gte", "lte")]))
    used = draw(st.sampled_from([chosen, chosen[:1], chosen[1:]]))
    return {name: draw(values) for name in used}


asked_values = scalars | st.sampled_from([7, -1.5, "m", "zz"])
conditions = st.one_of(
    asked_values,
    st.fixed_dictionaries({"in": st.lists(asked_values, max_size=12)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    bounds(),
    st.builds(lambda a, b: {"in": a, **b}, st.lists(asked_values, max_size=3), bounds()),
)
leaves = st.dictionaries(st.sampled_from(sorted(FIELDS)), conditions, max_size=2)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"and": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"or": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
        st.builds(lambda a, b: {**a, "not": b}, leaves, inner),
    ),
    max_leaves=6,
)


# Every kind in every field makes every condition valid. Without lists, columns with one value a document occur too.
EVERY_KIND: list[dict[str, Any]] = [dict.fromkeys(FIELDS, value) for value in (True, 2.5, "net")]


@pytest.mark.sweep
@given(documents, filters)
@cases(50)
def test_a_filter_matches_the_same_documents_as_plain_python(
    given: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    given = [*given, *EVERY_KIND]
    found = matching(parse_filter(asked), columns_of(given))
    assert found.dtype == np.bool_
    assert found.tolist() == [matches_document(asked, document) for document in given]


OFFSETS = [timezone(timedelta(hours=hours)) for hours in (-11, 0, 2)]
moments = st.builds(
    lambda hour, offset: (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)).astimezone(offset),
    st.integers(-30, 30),
    st.sampled_from(OFFSETS),
)  # fmt: skip
other_texts = st.sampled_from(["2026", "2025-12-31x", "soon", ""])


@given(
    st.lists(st.lists(moments | other_texts, max_size=2), max_size=8),
    st.dictionaries(st.sampled_from(["gt", "gte"]), moments, max_size=1),
    st.dictionaries(st.sampled_from(["lt", "lte"]), moments, max_size=1),
)
@cases(50)
def test_bounds_of_time_match_by_time(
    given: list[list[datetime | str]], lower: dict[str, datetime], upper: dict[str, datetime]
) -> None:
    bounds = lower | upper
    written = [{"at": [v if isinstance(v, str) else v.isoformat() for v in own]} for own in given]
    written_bounds = {name: bound.isoformat() for name, bound in bounds.items()}
    asked: dict[str, Any] = {"at": written_bounds or {"exists": True}}
    found = matching(parse_filter(asked), columns_of([*written, {"at": "soon"}]))[: len(given)]
    times = [[v for v in own if not bounds or not isinstance(v, str)] for own in given]
    assert found.tolist() == [
        any(all(COMPARED[name](v, bound) for name, bound in bounds.items()) for v in own)
        for own in times
    ]


@pytest.mark.parametrize(
    ("asked", "is_found"),
    [
        ({"day": {"gte": "2026-01-02", "lt": "2026-01-02T00:00:01Z"}}, True),
        ({"day": {"lt": "2026-01-02T01:00:00+01:00"}}, False),
        ({"at": {"lt": "2026-01-01T23:00:00Z"}}, True),
        ({"at": {"gte": "2026", "lt": "2026-01-02"}}, True),  # one bound is text: by code point
        ({"name": {"gte": "2026-01-02"}}, False),
        ({"name": {"gte": "2026"}}, True),
    ],
)
def test_days_and_times_are_bounds_of_time(asked: dict[str, Any], is_found: bool) -> None:
    document: dict[str, Any] = {
        "day": "2026-01-02",
        "at": "2026-01-01T23:30:00+01:00",
        "name": "net",
    }
    assert matching(parse_filter(asked), columns_of([document])).tolist() == [is_found]


points = st.builds(
    Point, st.floats(-90, 90).map(lambda x: round(x, 3)), st.floats(-180, 180).map(lambda x: round(x, 3))
)  # fmt: skip
places = points.map(lambda at: at._asdict()) | points.map(lambda at: f"{at.lat}, {at.lon}")


def _km(one: Point, other: Point) -> float:
    """The distance by the angle between two vectors, with arctan2: exact for near and for far points."""
    vectors: list[Any] = []
    for lat, lon in np.radians([one, other]):
        vectors.append([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    angle = np.arctan2(np.linalg.norm(np.cross(*vectors)), np.dot(*vectors))
    return float(6371.0088 * angle)


def _point(value: Any) -> Point:
    return Point(*(value.values() if isinstance(value, dict) else map(float, value.split(","))))


@given(st.lists(st.lists(places, max_size=3), max_size=6), points, st.floats(0, 20_100))
@cases(40)
def test_places_match_and_are_ordered_by_distance(
    given: list[list[Any]], near: Point, km: float
) -> None:
    columns = columns_of([*({"at": own} for own in given), {"at": ["91,0", "here"]}])
    distances = [[_km(_point(value), near) for value in own] for own in given]
    assume(all(abs(distance - km) > 1e-6 for own in distances for distance in own))
    nearest = [min(own, default=math.inf) for own in distances] + [math.inf]
    within = {"at": {"within": {**near._asdict(), "km": km}}}
    assert matching(parse_filter(within), columns).tolist() == [own <= km for own in nearest]
    [values] = sort_values([columns], [SortKey("at", near=near)])
    np.testing.assert_allclose(values[0], nearest, atol=1e-6)
    [boosts] = boosts_of([columns], [Boost("at", 2.0, Decay(near, 100))], now=0)
    expected = [2 * 0.5 ** (distance / 100) for distance in nearest]
    np.testing.assert_allclose(boosts, expected, atol=1e-9)


names = st.sampled_from(["a", "b", "a!", "a b", "", ">"])
paths = st.lists(names, min_size=1, max_size=3).map(" > ".join)


@given(st.lists(st.lists(paths, max_size=3), min_size=1, max_size=8), paths | st.just(""))
@cases(60)
def test_paths_match_and_are_counted_below_a_path(given: list[list[str]], path: str) -> None:
    columns = columns_of([*({"kind": own} for own in given), {"kind": "c"}])
    every = [*given, ["c"]]

    def is_below(value: str) -> bool:
        return value.startswith(f"{path} > ")

    found = matching(parse_filter({"kind": {"under": path}}), columns).tolist()
    assert found == [any(value == path or is_below(value) for value in own) for own in every]
    cut = []
    for own in every:
        start = f"{path} > " if path else ""
        below = [value.removeprefix(start) for value in own if value.startswith(start)]
        cut.append({start + value.split(" > ")[0] for value in below})
    facet = facet_over([(columns, np.ones(len(every), np.bool_))], "kind", 100, under=path)
    counts = Counter(value for own in cut for value in own)
    assert {one.value: one.count for one in facet.values} == counts
    assert facet.missing == sum(not own for own in cut)


DOCUMENTS: list[dict[str, Any]] = [
    {"section": "net", "year": 1990, "tags": ["a", "b"], "free": True, "text": "x" * 300},
    {"section": "mail", "year": 1995.5, "tags": ["b"], "free": False},
    {"section": "net", "year": 2001, "tags": [], "never": None},
    {"tags": "c", "code": 5},
    {"code": "5"},
]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"section": "net"}, [0, 2]),
        ({"section": "ne"}, []),
        ({"section": "net", "year": 1990}, [0]),
        ({"not": {"section": "net"}}, [1, 3, 4]),
        ({"section": {"in": ["mail", "net", "x"]}}, [0, 1, 2]),
        ({"section": {"in": []}}, []),
        ({"section": {"gte": "n"}}, [0, 2]),
        ({"section": {"gt": "mail", "lt": "net"}}, []),
        ({"year": {"gte": 1990, "lt": 2001}}, [0, 1]),
        ({"year": {"gt": 1990.0}}, [1, 2]),
        ({"year": {"gt": 3000, "lt": 1000}}, []),
        ({"year": {"exists": False}}, [3, 4]),
        ({"tags": "b"}, [0, 1]),
        ({"tags": {"exists": True}}, [0, 1, 3]),
        ({"free": False}, [1]),
        ({"not": {"free": False}}, [0, 2, 3, 4]),
        ({"code": 5}, [3]),
        ({"code": "5"}, [4]),
        ({"code": {"in": [5, "5"]}}, [3, 4]),
        ({"never": 3}, []),
        ({"never": "x"}, []),
        ({"never": {"gt": 1}}, []),
        ({"never": {"exists": False}}, [0, 1, 2, 3, 4]),
        ({"or": [{"section": "mail"}, {"tags": "c"}]}, [1, 3]),
        ({"or": []}, []),
        ({"and": []}, [0, 1, 2, 3, 4]),
    ],
)
def test_a_filter_matches_these_documents(asked: dict[str, Any], rows: list[int]) -> None:
    found = matching(parse_filter(asked), columns_of(DOCUMENTS))
    assert np.flatnonzero(found).tolist() == rows


def nested(depth: int) -> dict[str, Any]:
    asked: dict[str, Any] = {"section": "net"}
    for _ in range(depth - 1):
        asked = {"not": asked}
    return asked


@pytest.mark.parametrize(
    ("asked", "path", "reason"),
    [
        (3, "filter", "must be an object"),
        ([], "filter", "must be an object"),
        ({"and": {}}, "filter.and", "a list of filters"),
        ({"and": [3]}, "filter.and.0", "must be an object"),
        ({"or": [{}, {"not": []}]}, "filter.or.1.not", "must be an object"),
        ({"year": None}, "filter.year", "exists"),
        ({"year": [1]}, "filter.year", "in"),
        ({"year": {}}, "filter.year", "gte"),
        ({"year": {"ge": 3}}, "filter.year", "gte"),
        ({"year": {"in": 3}}, "filter.year.in", "a list of values"),
        ({"year": {"in": [1, None]}}, "filter.year.in.1", "null"),
        ({"year": {"in": [{}]}}, "filter.year.in.0", "must be text, a number"),
        ({"year": {"gte": 3, "gt": 3}}, "filter.year", "both gt and gte"),
        ({"year": {"lt": 3, "lte": 3}}, "filter.year", "both lt and lte"),
        ({"year": {"gte": 3, "lt": "4"}}, "filter.year", "a number, the other is text"),
        ({"year": {"gte": True}}, "filter.year.gte", "no order"),
        ({"year": {"gte": None}}, "filter.year.gte", "null"),
        ({"year": {"exists": 1}}, "filter.year.exists", "true or false"),
        ({"year": 2**53 + 1}, "filter.year", "2^53"),
        ({"year": {"lt": 10**400}}, "filter.year.lt", "2^53"),
        ({"year": float("nan")}, "filter.year", "must be finite"),
        ({"year": {"in": [float("inf")]}}, "filter.year.in.0", "must be finite"),
        ({"section": "\ud800"}, "filter.section", "surrogate"),
        ({"\ud800": 1}, "filter", "surrogate"),
        ({"x" * 257: 1}, "filter", "256"),
        ({"sections": "net"}, "filter.sections", "known fields: code, free, never, section, tags, year"),
        ({"not": {"text": "x"}}, "filter.not.text", "longer than 256 bytes"),
        ({"text": {"exists": True}}, "filter.text.exists", "cannot be filtered on"),
        ({"year": "1990"}, "filter.year", "has numbers, not text"),
        ({"year": True}, "filter.year", "has numbers, not true or false"),
        ({"section": {"in": ["net", 3]}}, "filter.section.in", "has text, not numbers"),
        ({"section": {"lt": 3}}, "filter.section", "has text, not numbers"),
        ({"code": True}, "filter.code", "has numbers and text, not true or false"),
        (nested(MAX_DEPTH + 1), "filter" + ".not" * MAX_DEPTH, "deeper"),
        (nested(900), "filter" + ".not" * MAX_DEPTH, "deeper"),
        ({"or": [{}] * MAX_CONDITIONS}, f"filter.or.{MAX_CONDITIONS - 1}", "conditions"),
        ({str(i): i for i in range(MAX_CONDITIONS + 1)}, "filter", "conditions"),
        ({"year": {"in": [1] * (MAX_VALUES + 1)}}, f"filter.year.in.{MAX_VALUES}", "values"),
    ],
)  # fmt: skip
def test_an_invalid_filter_is_refused_with_path_and_reason(
    asked: Any, path: str, reason: str
) -> None:
    with pytest.raises(QueryError) as caught:
        matching(parse_filter(asked), columns_of(DOCUMENTS))
    assert isinstance(caught.value, FilterError)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value) == f"{path}: {caught.value.reason}"


def test_a_filter_of_the_largest_size_is_accepted() -> None:
    columns = columns_of(DOCUMENTS)
    assert matching(parse_filter(nested(MAX_DEPTH)), columns).sum() == 3
    many = {"year": {"in": list(range(MAX_VALUES))}}
    assert matching(parse_filter(many), columns).tolist() == [True, False, True, False, False]
    wide = {"or": [{"year": year} for year in range(1990, 1990 + MAX_CONDITIONS // 2 - 1)]}
    assert matching(parse_filter(wide), columns).tolist() == [True, False, True, False, False]


def test_an_unknown_field_lists_at_most_twenty_known_fields() -> None:
    columns = columns_of([{f"f{i:03}": i for i in range(50)}])
    with pytest.raises(FilterError, match=r"f000, .*, f019 and 30 more$"):
        matching(parse_filter({"g": 1}), columns)
    with pytest.raises(FilterError, match=r"the documents have no fields to filter on$"):
        matching(parse_filter({"g": 1}), columns_of([{}]))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, True),
        ({"and": []}, True),
        ({"or": []}, False),
        ({"not": {}}, False),
        ({"or": [{"year": 1}, {}]}, True),
        ({"or": [{"year": 1}, {"or": []}]}, None),
        ({"and": [{"year": 1}, {"or": []}]}, False),
        ({"year": 1, "section": {"in": []}}, False),
        ({"not": {"section": {"in": []}}}, True),
        ({"year": {"gte": 5, "lte": 5}}, None),
        ({"year": {"gt": 5, "lte": 5}}, False),
        ({"year": {"gte": 6, "lt": 5}}, False),
        ({"section": {"gte": "b", "lt": "a"}}, False),
        ({"day": {"gte": "2026-11-23T12:00:00+01:00", "lte": "2026-11-23T11:00:00Z"}}, None),
        ({"day": {"gt": "2026-11-23T12:00:00+01:00", "lt": "2026-11-23T11:00:00Z"}}, False),
        ({"year": {"exists": True}}, None),
    ],
)
def test_a_filter_is_constant(asked: dict[str, Any], expected: bool | None) -> None:
    assert constant(parse_filter(asked)) is expected


@given(filters, documents)
def test_a_constant_filter_is_the_same_for_every_document(
    asked: dict[str, Any], stored: list[dict[str, Any]]
) -> None:
    found = constant(parse_filter(asked))
    if found is not None:
        assert all(matches_document(asked, document) == found for document in stored)


number = st.integers(-3, 9)
bound = st.none() | number
ranges_documents = st.lists(
    st.fixed_dictionaries(
        {}, optional={"x": number | st.lists(number, max_size=3) | st.sampled_from(["tea", True])}
    ),
    min_size=1,
    max_size=12,
)


def many(value: Any) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    return [one for one in found if type(one) is int]


@given(
    ranges_documents, ranges_documents, st.lists(st.tuples(bound, bound), max_size=4), st.randoms()
)
def test_counts_equal_the_brute_force(
    one: list[dict[str, Any]], other: list[dict[str, Any]], bounds: list[Any], random: Any
) -> None:
    one = [*one, {"x": 0}]
    ranges = [Range(a, b) for a, b in bounds if a is None or b is None or a < b]
    tables = aligned([columns_of(one), columns_of(other)])
    masks = [np.array([random.random() < 0.7 for _ in part], np.bool_) for part in (one, other)]
    expected = [
        sum(
            any((a is None or x >= a) and (b is None or x < b) for x in many(fields.get("x")))
            for part, mask in zip((one, other), masks, strict=True)
            for fields, is_matching in zip(part, mask, strict=True)
            if is_matching
        )
        for a, b in ranges
    ]
    assert range_counts(list(zip(tables, masks, strict=True)), "x", ranges) == expected


DATED = columns_of(
    [
        {"made": "2026-01-01", "tag": "a"},
        {"made": "2026-01-01T01:00:00+02:00"},
        {"made": "2026-03-01T00:00:00Z"},
        {"made": "soon"},
    ]
)


def counted(field: str, *ranges: Range) -> list[int]:
    return range_counts([(DATED, np.ones(4, np.bool_))], field, ranges)


def test_times_are_counted_in_utc() -> None:
    year = "2026-01-01T00:00:00Z"
    assert counted("made", Range(stop=year), Range(year), Range()) == [1, 2, 3]
    assert datetime.fromisoformat("2026-01-01T01:00:00+02:00") < datetime.fromisoformat(year)


@pytest.mark.parametrize(
    ("field", "asked", "path", "reason"),
    [
        ("nowhere", Range(), "facet_ranges", "known fields: made, tag"),
        ("tag", Range(), "facet_ranges", "as in: made"),
        ("made", Range("2026-01-01"), "facet_ranges.0.from", "offset from UTC"),
        ("made", Range(stop=7), "facet_ranges.0.to", "offset from UTC"),
        ("made", Range("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), "facet_ranges.0", "below"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(field: str, asked: Range, path: str, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        counted(field, asked)
    assert raised.value.path == path
    assert reason in raised.value.reason


DAY = 86_400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0.0),
        ("1970-01-02T00:00:00Z", DAY),
        ("1970-01-02T01:00:00+01:00", DAY),
        ("1970-01-01T12:00", DAY / 2),
        ("1969-12-31", -DAY),
        ("tea", None),
        ("19700102", None),
        ("1970", None),
        ("1970-13-01", None),
        ("", None),
    ],
)
def test_a_time_is_iso_8601(text: str, seconds: float | None) -> None:
    assert time_of(text) == seconds


def test_a_time_of_a_request_needs_an_offset() -> None:
    assert time_of("1970-01-02", needs_offset=True) is None
    assert time_of("1970-01-02T00:00:00", needs_offset=True) is None
    assert time_of("1970-01-02T00:00:00+00:00", needs_offset=True) == DAY


def test_numbers_come_before_true_and_false_and_times() -> None:
    documents: list[dict[str, Any]] = [
        {"a": 1, "b": True, "c": "1970-01-02", "d": "tea", "e": None},
        {"a": "1970-01-02", "b": "1970-01-02", "c": "tea", "d": "x", "e": None},
    ]
    columns = columns_of(documents)
    scales = {name: scale_of([columns[name]]) for name in "abcde"}
    assert scales == {"a": "number", "b": "boolean", "c": "time", "d": None, "e": None}


def test_the_scale_of_a_field_is_that_of_all_tables() -> None:
    first = columns_of([{"a": 1, "b": "1970-01-02", "c": "tea", "d": "tea"}])
    second = columns_of([{"a": "x", "b": "tea", "c": None}])
    times = replace(second["c"], has_times_elsewhere=True)
    with_times = replace(second, by_name={**second.by_name, "c": times})
    own, *_ = aligned([first, second, with_times])
    scales = {name: scale_of([own[name]]) for name in "abcd"}
    assert scales == {"a": "number", "b": "time", "c": "time", "d": None}
    other = aligned([second, first])[0]
    assert scale_of([other["a"]]) == "number"


def test_a_document_has_its_largest_value() -> None:
    documents: list[dict[str, Any]] = [{"x": [3, 1]}, {}, {"x": 2}, {"x": "tea"}, {"x": [2, 5, 4]}]
    columns = columns_of(documents)
    own = dictionary(columns["x"], "number")
    assert own is not None
    found = largest(*own, len(documents)).tolist()
    assert found[0] == 3
    assert [found[2], found[4]] == [2, 5]
    assert math.isnan(found[1])
    assert math.isnan(found[3])
    single = columns_of([{"x": 3}, {}])
    own = dictionary(single["x"], "number")
    assert own is not None
    np.testing.assert_array_equal(largest(*own, 2), [3, np.nan])
    assert dictionary(single["x"], "time") is None
