"""Columns have the values of the stored fields; what does not fit is refused with a reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError, FilterError
from fullrank.filters.columns import Columns, ColumnsBuilder, columns_of, open_columns
from fullrank.filters.columns.build import MAX_FIELDS
from fullrank.filters.facets import ValueCount, counted, facet_over, merged
from fullrank.storage.strings import StringTable
from tests.random_cases import cases
from tests.stored_fields import FIELDS, documents, kind_of, values_of

Arrays = dict[str, npt.NDArray[Any]]
Tables = dict[str, StringTable]


def stored(given: Iterable[dict[str, Any]]) -> tuple[Arrays, Tables, dict[str, Any]]:
    """The arrays, string tables and facts that a builder writes for these documents."""
    arrays: Arrays = {}
    tables: Tables = {}

    def create(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        assert name not in arrays
        # Not zeros: the builder must fill the whole array.
        arrays[name] = np.full(shape, 77, dtype)
        return arrays[name]

    def strings(name: str, texts: Iterable[str]) -> None:
        assert name not in tables
        tables[name] = StringTable.of(texts)

    builder = ColumnsBuilder()
    for fields in given:
        builder.add(json.loads(json.dumps(fields)))
    facts = builder.finish(create, strings)
    return arrays, tables, facts


def contents(columns: Columns) -> dict[str, list[list[Any]]]:
    """The values of each document by field, read from the arrays."""
    found: dict[str, list[list[Any]]] = {}
    for name, column in columns.by_name.items():
        found[name] = [[] for _ in range(columns.documents)]
        for part in column.parts.values():
            for row in range(columns.documents):
                if part.indptr is None:
                    codes = [int(part.codes[row])] if part.codes[row] >= 0 else []
                else:
                    start, stop = part.indptr[row : row + 2].tolist()
                    codes = part.codes[start:stop].tolist()
                found[name][row] += [part.values[code] for code in codes]
    return found


def sorted_values(values: list[Any]) -> list[Any]:
    """Distinct values by kind, then by value, numbers as floats."""
    plain = {(kind_of(v), float(v) if kind_of(v) == "number" else v) for v in values}
    return [value for _, value in sorted(plain, key=lambda pair: (order(pair[0]), pair[1]))]


def order(kind: str) -> int:
    return ("boolean", "number", "keyword").index(kind)


@pytest.mark.sweep
@given(documents)
def test_columns_have_the_values_of_the_stored_fields(given: list[dict[str, Any]]) -> None:
    arrays, tables, facts = stored(given)
    columns = open_columns(len(given), facts, arrays, tables)
    assert columns.documents == facts["documents"] == len(given)
    assert columns.refused == {}
    expected = {
        name: [sorted_values(values_of(document, name)) for document in given]
        for name in dict.fromkeys(name for document in given for name in document)
    }
    for read in (columns, columns_of(given)):
        assert contents(read) == expected
        for name, rows in expected.items():
            assert read[name].has_value().tolist() == [bool(values) for values in rows]


def test_a_column_of_single_values_has_no_lists() -> None:
    columns = columns_of([{"tag": ["a", "a"]}, {"tag": "b"}, {"tag": []}, {"tag": [None]}])
    part = columns["tag"].parts["keyword"]
    assert part.indptr is None
    assert part.codes.tolist() == [0, 1, -1, -1]
    assert part.codes.dtype == np.int8


@pytest.mark.parametrize(
    ("count", "dtype"), [(128, np.int8), (129, np.int16), (32768, np.int16), (32769, np.int32)]
)
def test_codes_have_the_smallest_type_that_fits(count: int, dtype: type) -> None:
    columns = columns_of({"n": i, "t": str(i)} for i in range(count))
    for kind, name in (("number", "n"), ("keyword", "t")):
        part = columns[name].parts[kind]  # type: ignore[index]
        assert part.codes.dtype == dtype
        assert int(part.codes.max()) == count - 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x" * 257, "longer than 256 bytes"),
        ("ß" * 129, "longer than 256 bytes"),
        ("\ud800", "longer than 256 bytes"),
        (2**53 + 1, "beyond 2^53"),
        (-(2**53) - 1, "beyond 2^53"),
        (float("inf"), "not finite"),
        (float("nan"), "not finite"),
        ({"a": 1}, "objects"),
        ([["a"]], "objects"),
        (["a", {"b": 1}], "objects"),
    ],
)
def test_one_value_that_does_not_fit_refuses_the_whole_field(value: Any, reason: str) -> None:
    columns = columns_of([{"f": "a", "g": 1}, {"f": value}, {"f": "b"}])
    assert list(columns.by_name) == ["g"]
    assert reason in columns.refused["f"]


def test_fields_with_names_too_long_or_not_encodable_are_ignored() -> None:
    columns = columns_of([{"n" * 257: 1, "\ud800": 1, "": 1}])
    assert list(columns.by_name) == [""]
    assert columns.refused == {}


def test_only_the_first_256_fields_become_columns() -> None:
    columns = columns_of([{f"f{i}": i for i in range(MAX_FIELDS + 9)}])
    assert list(columns.by_name) == [f"f{i}" for i in range(MAX_FIELDS)]


def test_too_many_different_texts_refuse_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullrank.filters.columns.build.MAX_KEYWORDS", 3)
    columns = columns_of({"f": str(i), "g": str(i % 3)} for i in range(4))
    assert list(columns.by_name) == ["g"]
    assert "more than 3 different texts" in columns.refused["f"]


def test_no_documents_or_no_fields_make_no_columns() -> None:
    assert columns_of([]).by_name == {}
    assert columns_of([{}, {}]).documents == 2
    arrays, tables, facts = stored([])
    assert (arrays, tables) == ({}, {})
    assert facts == {"documents": 0, "fields": []}


SOUND: list[dict[str, Any]] = [
    {"section": "net", "year": 1990, "tags": ["a", "b"], "text": "x" * 300},
    {"section": "mail", "year": 1991, "tags": ["b"]},
    {"tags": ["c", "a"]},
]


def test_the_facts_describe_each_field() -> None:
    assert stored(SOUND)[2]["fields"] == [
        {"name": "section", "parts": {"keyword": {"values": 2, "lists": False}}},
        {"name": "year", "parts": {"number": {"values": 2, "lists": False}}},
        {"name": "tags", "parts": {"keyword": {"values": 3, "lists": True}}},
        {"name": "text", "refused": "it holds text longer than 256 bytes"},
    ]


def _set(name: str, *place: int, value: Any) -> Callable[[Arrays, Tables], None]:
    def damage(arrays: Arrays, tables: Tables) -> None:
        arrays[name][place] = value

    return damage


def _array(name: str, array: npt.NDArray[Any]) -> Callable[[Arrays, Tables], None]:
    def damage(arrays: Arrays, tables: Tables) -> None:
        arrays[name] = array

    return damage


def _table(name: str, *texts: str) -> Callable[[Arrays, Tables], None]:
    def damage(arrays: Arrays, tables: Tables) -> None:
        tables[name] = StringTable.of(texts)

    return damage


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_set("0.keyword.codes", 0, value=2), "0.keyword.codes: a code outside -1..1"),
        (_set("0.keyword.codes", 0, value=-2), "0.keyword.codes: a code outside -1..1"),
        (_set("2.keyword.codes", 0, value=-1), "2.keyword.codes: an index outside 0..2"),
        (_set("2.keyword.codes", 0, value=1), "2.keyword.codes: indices of a row do not ascend"),
        (_set("2.keyword.indptr", 0, value=1), "2.keyword.indptr: does not ascend from 0"),
        (_set("2.keyword.indptr", 1, value=9), "2.keyword.indptr: does not ascend from 0"),
        (_set("2.keyword.indptr", 3, value=4), "2.keyword.indptr: does not ascend from 0"),
        (_set("1.number.values", 0, value=2000), "1.number.values: not ascending"),
        (_set("1.number.values", 1, value=np.inf), "1.number.values: not finite"),
        (_array("1.number.values", np.zeros(2, np.float32)), "not a one-dimensional float64 array"),
        (_array("0.keyword.codes", np.zeros(3, np.int64)), "not a one-dimensional array of int8"),
        (_array("0.keyword.codes", np.zeros((3, 1), np.int8)), "not a one-dimensional array of int8"),
        (_array("0.keyword.codes", np.zeros(2, np.int8)), "2 codes for 3 documents"),
        (_array("2.keyword.indptr", np.zeros(3, np.int64)), "2.keyword.indptr: not an int64 array of shape (4,)"),
        (_table("0.keyword.values", "net", "mail"), "0.keyword.values: row 1, 'mail', does not come after 'net'"),
        (lambda arrays, tables: tables.pop("0.keyword.values"), "0.keyword.values: missing"),
        (lambda arrays, tables: arrays.pop("2.keyword.indptr"), "2.keyword.indptr: missing"),
        (_array("0.keyword.indptr", np.zeros(4, np.int64)), "0.keyword.indptr: not described in"),
        (_table("0.keyword.names"), "0.keyword.names: not described in"),
        (_table("0.keyword.values", "net"), "0.keyword.values: 1 values, the manifest has 2"),
    ],
)  # fmt: skip
def test_a_damaged_column_is_refused_by_name(
    damage: Callable[[Arrays, Tables], None], reason: str
) -> None:
    arrays, tables, facts = stored(SOUND)
    damage(arrays, tables)
    with pytest.raises(BundleError) as caught:
        open_columns(3, facts, arrays, tables)
    assert reason in str(caught.value)


def test_codes_too_narrow_for_their_values_are_refused() -> None:
    arrays, tables, facts = stored({"n": i} for i in range(200))
    arrays["0.number.codes"] = np.zeros(200, np.int8)
    with pytest.raises(BundleError, match=r"0\.number\.codes: too narrow for 200 values"):
        open_columns(200, facts, arrays, tables)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "does not describe the columns"),
        ({"documents": 3, "fields": {}}, "does not describe the columns"),
        ({"documents": 3, "fields": [], "more": 1}, "does not describe the columns"),
        ({"documents": 4, "fields": []}, "the columns have 4 documents, the bundle has 3"),
        ({"documents": 3, "fields": [3]}, "does not describe a field"),
        ({"documents": 3, "fields": [{"name": "a"}]}, "does not describe a field"),
        ({"documents": 3, "fields": [{"name": "a", "parts": {"text": {}}}]}, "describe a field"),
        ({"documents": 3, "fields": [{"name": "a", "parts": {"number": 3}}]}, "describe a field"),
        ({"documents": 3, "fields": [{"name": "a", "parts": {}}] * 2}, "describes 'a' twice"),
    ],
)
def test_malformed_facts_are_refused(facts: dict[str, Any], reason: str) -> None:
    with pytest.raises(BundleError, match=reason):
        open_columns(3, facts, {}, {})


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
