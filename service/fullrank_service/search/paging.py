"""Pages that begin after the last hit of the page before, not at an offset."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fullrank.live.part import Hits


class After(NamedTuple):
    """Where a page begins: after a score and, among equal ones, after an id.

    place  number of hits on the pages before, so that the first search is deep enough
    """

    score: float = math.inf
    id: str = ""
    place: int = 0


def page_after(
    search: Callable[[int], Hits], after: After, limit: int
) -> tuple[Hits, After | None]:
    """Return a page of a ranking by score, and where the next one begins; None after the last one.

    Documents that were added or deleted meanwhile move no other one, because each is compared with the last hit alone.

    Args:
        search: Returns so many of the best documents, ties by id.
        after: Where the page begins.
        limit: Maximum number of hits.
    """
    depth = after.place + limit + 1
    while True:
        found = search(depth)
        rest = [hit for hit in found.hits if (-hit.score, hit.id) > (-after.score, after.id)]
        if len(rest) > limit or len(found.hits) < depth:
            break
        depth *= 2
    page = rest[:limit]
    following = None
    if len(rest) > limit:
        following = After(page[-1].score, page[-1].id, after.place + len(page))
    return replace(found, hits=page), following
