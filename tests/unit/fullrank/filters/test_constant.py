"""Filters that are the same for every document: found, and never confused with others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from fullrank.filters.query import constant, parse_filter
from tests.stored_fields import documents
from tests.unit.fullrank.filters.test_query import filters, matches_document


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
