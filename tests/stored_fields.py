"""Documents with stored fields of every kind, for tests of columns, filters and facets."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KEYWORDS = ["", "a", "b", "Net", "net", "ß", "日本", "🙂", "z" * 256]
NUMBERS: list[Any] = [0, -0.0, 1, 1.0, 2.5, -3, 1e300, 2**53, -(2**53), 1990, 1991]

keywords = st.sampled_from(KEYWORDS)
numbers = st.sampled_from(NUMBERS)
scalars = st.one_of(keywords, numbers, st.booleans())

# Values of each field; "mixed" and "lists" have several kinds.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "section": keywords,
    "year": numbers,
    "free": st.booleans(),
    "tags": st.lists(keywords, max_size=4),
    "years": st.lists(numbers, max_size=3),
    "mixed": scalars,
    "lists": st.one_of(scalars, st.lists(st.one_of(scalars, st.none()), max_size=4)),
    "empty": st.none(),
}

documents = st.lists(
    st.fixed_dictionaries(
        {}, optional={name: st.one_of(st.none(), values) for name, values in FIELDS.items()}
    ),
    max_size=12,
)


def values_of(document: dict[str, Any], field: str) -> list[Any]:
    """Return the values of a document in a field, without nulls."""
    value = document.get(field)
    values = value if isinstance(value, list) else [value]
    return [value for value in values if value is not None]


def kind_of(value: Any) -> str:
    """Return the kind of a JSON value."""
    if isinstance(value, bool):
        return "boolean"
    return "keyword" if isinstance(value, str) else "number"
