"""Groups of documents that come from several places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from fullrank.ordering.order import Group, possible, within
from tests.random_cases import cases

groups = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
# (place among all documents, groups) of each document of one part
parts = st.lists(
    st.lists(st.tuples(st.integers(0, 99), groups), max_size=8), min_size=1, max_size=4
)


def keyed(names: Sequence[str]) -> list[Group]:
    return [("keyword", name) for name in names]


@given(parts, st.integers(1, 3))
@cases(150)
def test_documents_that_are_not_possible_are_never_kept(
    drawn: list[list[tuple[int, list[str]]]], limit: int
) -> None:
    numbered = [
        sorted((place, part, names) for place, names in documents)
        for part, documents in enumerate(drawn)
    ]
    pruned = [
        [documents[i] for i in possible((keyed(names) for *_, names in documents), limit)]
        for documents in numbered
    ]
    answers = []
    for given_parts in (numbered, pruned):
        merged = sorted(chain.from_iterable(given_parts))
        kept = within((keyed(names) for *_, names in merged), limit)
        answers.append([merged[place] for place in kept])
    assert answers[0] == answers[1]


def test_single_values_leave_no_more_than_the_limit() -> None:
    documents = [keyed("a"), keyed("a"), keyed("b"), keyed(""), keyed("ab"), keyed("a")]
    assert possible(documents, 1) == [0, 2, 3]
    assert possible(documents, 2) == [0, 1, 2, 3]
