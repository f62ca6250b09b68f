"""Which documents a search may return: its own filter, the filters of rules, and a list of ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from logging import getLogger
from typing import Any, NamedTuple

from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.identifiers import named
from fullrank.live import View
from fullrank_service.search.caching.bitmaps import Bitmaps, Mask

_log = getLogger(__name__)


class Restriction(NamedTuple):
    """A filter that a rule adds to a search."""

    rule: str
    filter: Mapping[str, Any]


def matching_documents(
    view: View,
    bitmaps: Bitmaps,
    filter: Mapping[str, Any] | None,
    path: str,
    restrictions: Sequence[Restriction] = (),
    only: Collection[str] | None = None,
    by_name: bool = False,
) -> list[Mask] | None:
    """Return for each part of a view the documents that a search may return, bool (n,); None: all of them.

    Args:
        view: What is searched.
        bitmaps: Results of filters.
        filter: Of the request.
        path: Its name in errors.
        restrictions: Of rules. One that does not fit the fields, because another model serves now, is ignored.
        only: Ids; None: all documents.
        by_name: ``only`` has values of identifiers such as skus, too.

    Raises:
        FilterError: The filter of the request does not fit the fields.
    """
    found: list[Mask] | None = None
    if filter is not None:
        found = _matching(view, bitmaps, filter, path)
    for rule, condition in restrictions:
        try:
            found = _both(found, _matching(view, bitmaps, condition, f"rules.{rule}.filter"))
        except FilterError as error:
            _log.warning("a filter of a rule is ignored: %s", error)
    if only is not None:
        found = _both(found, _rows(view, only, by_name))
    return found


def _matching(view: View, bitmaps: Bitmaps, condition: Mapping[str, Any], path: str) -> list[Mask]:
    return [
        bitmaps.matching(key, columns, condition, path)
        for key, columns in zip(view.keys, view.columns, strict=True)
    ]


def _rows(view: View, ids: Collection[str], by_name: bool) -> list[Mask]:
    none = (Columns(len(part), {}, {}) for part in view.parts)
    pairs = zip(view.parts, view.columns if by_name else none, strict=True)
    return [named(ids, part.row, columns) for part, columns in pairs]


def _both(one: list[Mask] | None, other: list[Mask]) -> list[Mask]:
    if one is None:
        return other
    return [a & b for a, b in zip(one, other, strict=True)]
