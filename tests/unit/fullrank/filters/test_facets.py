"""Facets count the same as collections.Counter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import FilterError
from fullrank.filters.columns import columns_of
from fullrank.filters.facets import ValueCount, counted, facet_over, merged
from tests.random_cases import cases
from tests.stored_fields import FIELDS, documents, kind_of, values_of

KINDS = ("boolean", "number", "keyword")


@pytest.mark.sweep
@given(documents, st.sampled_from(sorted(FIELDS)), st.integers(1, 6), st.data())
@cases(40)
def test_a_facet_counts_the_same_as_a_counter(
    given: list[dict[str, Any]], field: str, limit: int, data: st.DataObject
) -> None:
    given = [*given, {field: None}]
    matching = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(given), max_size=len(given)))
    )
    chosen = [document for document, wanted in zip(given, matching, strict=True) if wanted]
    counter = Counter(
        pair
        for document in chosen
        # Each value counts once a document: 1 and 1.0 are one number, 1 and true are two values.
        for pair in {(KINDS.index(kind_of(v)), v) for v in values_of(document, field)}
    )
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    numbers = [value for kind, value in counter if kind == 1]

    found = facet_over([(columns_of(given), matching)], field, limit)
    assert found.values == tuple(ValueCount(v, count) for (_, v), count in ordered[:limit])
    kinds = [kind_of(value.value) for value in found.values]
    assert kinds == [KINDS[kind] for (kind, _), _ in ordered[:limit]]
    assert found.distinct == len(counter)
    assert found.missing == sum(not values_of(document, field) for document in chosen)
    assert (found.minimum, found.maximum) == (
        (min(numbers), max(numbers)) if numbers else (None, None)
    )


@pytest.mark.sweep
@given(documents, documents, st.sampled_from(sorted(FIELDS)), st.integers(1, 6))
@cases(40)
def test_merged_counts_are_those_of_the_union(
    one: list[dict[str, Any]], other: list[dict[str, Any]], field: str, limit: int
) -> None:
    sets = [[*one, {field: None}], [*other, {field: None}]]
    tables = [columns_of(documents) for documents in sets]
    counts = [counted(own, field, np.ones(own.documents, np.bool_)) for own in tables]
    union = columns_of([*sets[0], *sets[1]])
    expected = facet_over([(union, np.ones(union.documents, np.bool_))], field, limit)
    found = merged(counts, limit)
    assert repr(found) == repr(expected)  # 1, 1.0 and true are three values


def test_whole_numbers_are_returned_as_integers() -> None:
    columns = columns_of({"n": n} for n in (3.0, 3, 2.5, 1e300, -0.0))
    found = facet_over([(columns, np.ones(5, np.bool_))], "n", 9)
    shown = [(repr(value.value), value.count) for value in found.values]
    assert shown == [("3", 2), ("0", 1), ("2.5", 1), ("1e+300", 1)]


def test_ties_among_many_values_are_ordered_by_value() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 3000, 5000).tolist()
    found = facet_over([(columns_of({"n": n} for n in values), np.ones(5000, np.bool_))], "n", 100)
    expected = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))[:100]
    assert [(item.value, item.count) for item in found.values] == expected


def test_a_facet_of_an_unknown_or_refused_field_is_an_error() -> None:
    columns = columns_of([{"text": "x" * 300, "n": 1}])
    with pytest.raises(FilterError, match=r"^facets\.0: this field cannot be filtered on"):
        facet_over([(columns, np.ones(1, np.bool_))], "text", 1, "facets.0")
    with pytest.raises(FilterError, match="unknown field; known fields: n"):
        facet_over([(columns, np.ones(1, np.bool_))], "m", 1)
