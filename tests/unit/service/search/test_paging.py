"""Pages after a hit, against the slices of a list that changes meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.search.searchable import Hit, Hits
from fullrank_service.base.errors import Invalid
from fullrank_service.search.request import After
from fullrank_service.search.routes import Cursor, Cursors, fingerprint
from fullrank_service.search.searching import page_after

Scores = dict[str, float]
NO_PART = cast(Any, SimpleNamespace())


def ranked(scores: Scores) -> list[Hit]:
    best = sorted((-score, id) for id, score in scores.items())
    return [Hit(NO_PART, 0, id, -score, 0.0, 0.0, 0.0) for score, id in best]


def searcher(scores: Scores) -> Any:
    return lambda depth: Hits(ranked(scores)[:depth], True, len(scores))


ids = st.sampled_from([f"d{i:02}" for i in range(30)])
scores = st.dictionaries(ids, st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=30)


@given(scores, st.integers(1, 7), st.lists(st.lists(ids, max_size=4), max_size=12))
def test_pages_have_every_document_that_is_not_deleted_once(
    start: Scores, limit: int, later: list[list[str]]
) -> None:
    """All pages are of the view of the first one, without documents that were deleted since."""
    left, after, seen = dict(start), After(), list[str]()
    for i in range(100):
        page, following = page_after(searcher(left), after, limit)
        assert len(page.hits) <= limit
        seen += [hit.id for hit in page.hits]
        if following is None:
            break
        assert len(page.hits) == limit
        after = following
        for id in later[i] if i < len(later) else ():
            left.pop(id, None)
    whole = [hit.id for hit in ranked(start)]
    assert seen == [id for id in whole if id in left or id in seen]
    assert len(seen) == len(set(seen))


@given(scores, st.integers(1, 7))
def test_without_writes_pages_are_the_slices(start: Scores, limit: int) -> None:
    after: After | None = After()
    whole, offset = [hit.id for hit in ranked(start)], 0
    while after is not None:
        assert after.place == offset
        page, after = page_after(searcher(start), after, limit)
        assert [hit.id for hit in page.hits] == whole[offset : offset + limit]
        offset += limit
    assert offset >= len(whole)


CURSOR = Cursor("v-1", fingerprint({"query": "a"}), 1.5, 0.1 + 0.2, "d\u20ac", 7)


def test_a_cursor_that_was_changed_is_refused(tmp_path: Path) -> None:
    cursors = Cursors(tmp_path / "key")
    text = cursors.text(CURSOR)
    other = cursors.text(replace_place(CURSOR))
    content, signature = text.split(".")
    mixed = f"{other.split('.')[0]}.{signature}"
    foreign = Cursors(tmp_path / "other").text(CURSOR)
    for bad in (mixed, content, f"{content}.", f".{signature}", "", "a.b.c", "é.é", foreign):
        with pytest.raises(Invalid) as raised:
            cursors.read(bad)
        [error] = raised.value.errors or []
        assert error["field"] == "cursor"


def replace_place(cursor: Cursor) -> Cursor:
    return cursor._replace(place=cursor.place + 1)
