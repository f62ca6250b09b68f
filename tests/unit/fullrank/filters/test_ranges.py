"""Counts of ranges against brute force."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import FilterError
from fullrank.filters.columns import aligned, columns_of
from fullrank.filters.facets import Range, range_counts

number = st.integers(-3, 9)
bound = st.none() | number
documents = st.lists(
    st.fixed_dictionaries(
        {}, optional={"x": number | st.lists(number, max_size=3) | st.sampled_from(["tea", True])}
    ),
    min_size=1,
    max_size=12,
)


def many(value: Any) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    return [one for one in found if type(one) is int]


@given(documents, documents, st.lists(st.tuples(bound, bound), max_size=4), st.randoms())
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
        (
            "made",
            Range("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"),
            "facet_ranges.0",
            "below",
        ),
    ],
)
def test_what_does_not_fit_is_named(field: str, asked: Range, path: str, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        counted(field, asked)
    assert raised.value.path == path
    assert reason in raised.value.reason
