"""Times in text fields, and the largest value of each document."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.filters.columns import aligned, columns_of
from fullrank.filters.columns.table import dictionary, largest, parse_time, scale_of

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
    assert parse_time(text) == seconds


def test_a_time_of_a_request_needs_an_offset() -> None:
    assert parse_time("1970-01-02", needs_offset=True) is None
    assert parse_time("1970-01-02T00:00:00", needs_offset=True) is None
    assert parse_time("1970-01-02T00:00:00+00:00", needs_offset=True) == DAY


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
