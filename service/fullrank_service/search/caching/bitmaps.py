"""A cache of filter results: the documents that match each filter.

A result depends on the documents and the filter alone, so its key is made of the key of the documents (the bundle's id)
and the filter's canonical JSON. The cache is bounded in bytes: a bitmap takes one byte a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from fullrank.bundle.manifest import canonical_json
from fullrank.filters.columns import Columns
from fullrank.filters.query import matching, parse_filter

Mask = npt.NDArray[np.bool_]

# What an entry takes besides its bitmap: key, array object, place in the table.
_OVERHEAD_BYTES = 512


class Bitmaps:
    """The cache, for all ranking threads; it drops the least recently used results first."""

    def __init__(self, max_bytes: int) -> None:
        self._masks: LRUCache[bytes, Mask] = LRUCache(max_bytes, _size)
        self._lock = Lock()

    def matching(
        self, documents: str, columns: Columns, condition: Mapping[str, Any], path: str
    ) -> Mask:
        """Return the documents that match a filter, as read-only bool (n,).

        Args:
            documents: a key that no other documents have, nor the same ones with other columns.
            columns: the fields of the documents.
            condition: JSON of fullrank.filters.query.
            path: the name of the filter in errors.

        Raises:
            FilterError: the condition is not a filter, or does not fit the fields.
        """
        parsed = parse_filter(condition, path)
        key = hashlib.blake2b(
            f"{documents}\0{canonical_json(condition)}".encode(), digest_size=16
        ).digest()
        with self._lock:
            mask = self._masks.get(key)
        if mask is None:
            mask = matching(parsed, columns)
            mask.flags.writeable = False
            with self._lock, suppress(ValueError):  # larger than the whole cache
                self._masks[key] = mask
        return mask


def _size(mask: Mask) -> int:
    return mask.nbytes + _OVERHEAD_BYTES
