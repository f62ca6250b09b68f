"""Values that no writer of ours would write, for tests of what reads them."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

# Every kind of JSON value, with what the letter of JSON has not: NaN, infinities, halves of surrogate pairs.
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400])
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["", "..", "../x", "a/b", "\ud800", "\0", "NaN", "<f4", "0" * 64, "x" * 5000])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
deep = st.sampled_from([f"{'[' * n}{']' * n}" for n in (500, 990, 3_000)] + ['{"a":' * 3_000])


def texts(value: Any) -> st.SearchStrategy[str]:
    return changed(value).map(json.dumps) | values.map(json.dumps) | deep | st.text(max_size=200)


def raw(value: Any) -> st.SearchStrategy[bytes]:
    """The same as bytes, and any bytes."""
    encoded = texts(value).map(lambda text: text.encode("utf-8", "surrogatepass"))
    valid = json.dumps(value).encode()
    cut = st.integers(0, len(valid)).map(lambda end: valid[:end])
    return encoded | cut | st.binary(max_size=200)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with one part of it exchanged for any other, or taken out."""
    made = copy.deepcopy(value)
    place = draw(st.sampled_from(_places(made)))
    if not place:
        return draw(values)
    holder = made
    for step in place[:-1]:
        holder = holder[step]
    if draw(st.integers(0, 3)) == 0:
        del holder[place[-1]]
    elif isinstance(holder, dict) and draw(st.integers(0, 5)) == 0:
        holder[draw(st.text(max_size=8))] = holder.pop(place[-1])
    else:
        holder[place[-1]] = draw(values)
    return made


def _places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before]
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for step, part in inner:
        found += _places(part, (*before, step))
    return found
