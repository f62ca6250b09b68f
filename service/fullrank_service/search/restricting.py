"""Which documents a search may return: its own filter, the filters of rules, and a list of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from logging import getLogger
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from fullrank.bundle.manifest import canonical_json
from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.identifiers import named
from fullrank.filters.query import matching, parse_filter
from fullrank.live import View
from fullrank_service.search.request import RankRequest

# A cache of filter results: the documents that match each filter.
#
# A result depends on the documents and the filter alone, so its key is made of the key of the documents (the bundle's
# id) and the filter's canonical JSON. The cache is bounded in bytes: a bitmap takes one byte a document.

Mask = npt.NDArray[np.bool_]

# What an entry takes besides its bitmap: key, array object, place in the table.
_OVERHEAD_BYTES = 512


class MaskCache:
    """Keeps masks up to a number of bytes, for all ranking threads; the least recently used ones go first."""

    def __init__(self, max_bytes: int) -> None:
        self._masks: LRUCache[Hashable, tuple[Mask, int]] = LRUCache(
            max_bytes, lambda kept: kept[1]
        )
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[Mask, int]]) -> Mask:
        """Return a mask, read-only; make returns it and the bytes that the entry takes."""
        with self._lock, suppress(KeyError):
            return self._masks[key][0]
        mask, size = make()
        mask.flags.writeable = False
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._masks[key] = mask, size
        return mask


class Bitmaps(MaskCache):
    """The cache of filter results."""

    def matching(
        self, documents: str, columns: Columns, condition: Mapping[str, Any], path: str
    ) -> Mask:
        """Return the documents that match a filter, as read-only bool (n,).

        Args:
            documents: a key that no other documents have, nor the same ones with other columns.
            path: the name of the filter in errors.

        Raises:
            FilterError: the condition is not a filter, or does not fit the fields.
        """
        parsed = parse_filter(condition, path)
        key = hashlib.blake2b(
            f"{documents}\0{canonical_json(condition)}".encode(), digest_size=16
        ).digest()

        def make() -> tuple[Mask, int]:
            mask = matching(parsed, columns)
            return mask, mask.nbytes + _OVERHEAD_BYTES

        return self.get(key, make)


_log = getLogger(__name__)
# The filter of a key in errors.
_KEY = "key.filter"


def matching_documents(view: View, bitmaps: Bitmaps, request: RankRequest) -> list[Mask] | None:
    """Return for each part of a view what a search may return, bool (n,); None: all. Raises FilterError."""
    found: list[Mask] | None = None
    if request.asked.filter is not None:
        found = _matching(view, bitmaps, request.asked.filter, request.filter_path)
    if request.key_filter is not None:
        found = _both(found, _matching(view, bitmaps, request.key_filter, _KEY))
    for rule, condition in request.restrictions:
        try:
            found = _both(found, _matching(view, bitmaps, condition, f"rules.{rule}.filter"))
        except FilterError as error:
            _log.warning("a filter of a rule is ignored: %s", error)
    if request.only is not None:
        found = _both(found, _rows(view, request.only, request.by_name))
    return found


def hidden_documents(
    view: View, bitmaps: Bitmaps, request: RankRequest
) -> list[Mask | None] | None:
    """Return as ``View.deleted`` what the key of a request may not see; None: it may see all."""
    if request.key_filter is None:
        return None
    return view.deleted(_matching(view, bitmaps, request.key_filter, _KEY))


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


def without(condition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a filter without the conditions that concern only one field. Looks at the top level and inside `and`."""
    kept: dict[str, Any] = {}
    for key, value in condition.items():
        if key == "and":
            kept[key] = [without(part, name) for part in value]
        elif _fields({key: value}) != {name}:
            kept[key] = value
    return kept


def _fields(condition: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for key, value in condition.items():
        parts = value if key in ("and", "or") else [value] if key == "not" else None
        found |= {key} if parts is None else set().union(*map(_fields, parts))
    return found
