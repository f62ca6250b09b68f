"""Pages of a search by cursors."""

from __future__ import annotations

from typing import NamedTuple

from fullrank.live import View
from fullrank_service.base.errors import CursorExpired, Invalid
from fullrank_service.http.serving import Serving
from fullrank_service.search.paging import FIRST, After, Cursor, Cursors, fingerprint
from fullrank_service.search.schemas import Asked, SearchRequest

# The fields that may differ between the pages of a list, because they change neither its documents nor their order.
# Those that page_of_cursor refuses are among them.
_FREE = {
    *Asked.model_fields,
    *("cursor", "limit", "offset", "min_seq", "mode", "sort", "group_by", "diversity"),
    *("fields", "facets", "facet_limit", "facet_ranges", "highlight", "explain"),
}


class CursorPage(NamedTuple):
    """The page that a cursor asks for.

    Attributes:
        model: Version of the cursor; of the first page the model of the request.
        after: Where the page begins.
        now: The origin "now" of boosts, the same for all pages, in seconds since 1970.
        seq: The last operation of the log that the first page contains; None: this is the first page.
    """

    model: str
    after: After
    now: float
    seq: int | None = None


def page_of_cursor(
    asked: SearchRequest, cursors: Cursors, serving: Serving, now: float
) -> CursorPage:
    """Read the cursor of a request.

    Raises:
        Invalid: the text is no cursor of this service or belongs to another search, or the request asks for another
            order than that of the score.
        CursorExpired: its version is not loaded any more.
    """
    others = {
        "offset": asked.offset > 0,
        "sort": bool(asked.sort),
        "group_by": asked.group_by is not None,
        "diversity": asked.diversity > 0,
        "mode": asked.mode == "fast",
    }
    errors = [
        {"field": name, "reason": "cannot be given with a cursor"}
        for name, is_given in others.items()
        if is_given
    ]
    if errors:
        raise Invalid(errors=errors)
    assert asked.cursor is not None
    if asked.cursor == FIRST:
        return CursorPage(asked.model, After(), now)
    cursor = cursors.read(asked.cursor)
    if cursor.search != _search(asked):
        same = ", ".join(sorted(SearchRequest.model_fields.keys() - _FREE))
        reason = f"belongs to another search; these must be the same on all pages: {same}"
        raise Invalid(errors=[{"field": "cursor", "reason": reason}])
    if cursor.version not in serving.models:
        raise CursorExpired
    return CursorPage(cursor.version, cursor.after, cursor.now, cursor.seq)


def cursor_of(
    asked: SearchRequest, cursors: Cursors, view: View, page: CursorPage, after: After
) -> str:
    """Write the cursor of the next page; the view is that of the page before."""
    seq = view.seq if page.seq is None else page.seq
    cursor = Cursor(
        view.bundle.version, _search(asked), page.now, seq, after.score, after.id, after.place
    )
    return cursors.text(cursor)


def _search(asked: SearchRequest) -> str:
    return fingerprint(asked.model_dump(exclude=_FREE))
