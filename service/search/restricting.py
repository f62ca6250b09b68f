"""Which documents a search may return: its own filter, the filters of rules, and a list of ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from logging import getLogger
from typing import Any, NamedTuple

import numpy as np

from fullrank.errors import FilterError
from fullrank.live import View
from service.search.caching.bitmaps import Bitmaps, Mask

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
) -> list[Mask] | None:
    """Return for each part of a view the documents that a search may return, bool (n,); None: all of them.

    Args:
        view: What is searched.
        bitmaps: Results of filters.
        filter: Of the request.
        path: Its name in errors.
        restrictions: Of rules. One that does not fit the fields, because another model serves now, is ignored.
        only: Ids; None: all documents.

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
        found = _both(found, _rows(view, only))
    return found


def _matching(view: View, bitmaps: Bitmaps, condition: Mapping[str, Any], path: str) -> list[Mask]:
    return [
        bitmaps.matching(key, columns, condition, path)
        for key, columns in zip(view.keys, view.columns, strict=True)
    ]


def _rows(view: View, ids: Collection[str]) -> list[Mask]:
    masks = []
    for part in view.parts:
        mask = np.zeros(len(part), np.bool_)
        mask[[row for id in ids if (row := part.row(id)) is not None]] = True
        masks.append(mask)
    return masks


def _both(one: list[Mask] | None, other: list[Mask]) -> list[Mask]:
    if one is None:
        return other
    return [a & b for a, b in zip(one, other, strict=True)]
