"""Which documents a filter lets through, remembered.

The answer depends on the documents and the filter alone, so it is kept under the key of the documents (the bundle's id)
and the filter's canonical JSON. What is kept is bounded in bytes: a bitmap is one byte a document, and its key is short
however long the filter.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import canonical_json
from fullrank.columns import Columns
from fullrank.filters.query import matching, parse_filter

Mask = npt.NDArray[np.bool_]

# Of an entry beside its bitmap: key, array object, place in the table.
_OVERHEAD_BYTES = 512


class Bitmaps:
    """The least recently used go first. Used from the ranking threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._masks: OrderedDict[bytes, Mask] = OrderedDict()
        self._lock = Lock()

    def matching(
        self, documents: str, columns: Columns, asked: Mapping[str, Any], path: str
    ) -> Mask:
        """bool (n,), read-only: the documents that the filter lets through.

        documents  a key that no other documents have, nor the same ones with other columns
        path       what the filter is called in errors
        Raises FilterError where it is none or does not fit the fields.
        """
        condition = parse_filter(asked, path)
        key = hashlib.blake2b(
            f"{documents}\0{canonical_json(asked)}".encode(), digest_size=16
        ).digest()
        with self._lock:
            mask = self._masks.get(key)
            if mask is not None:
                self._masks.move_to_end(key)
                return mask
        mask = matching(condition, columns)
        mask.flags.writeable = False
        self._remember(key, mask)
        return mask

    def _remember(self, key: bytes, mask: Mask) -> None:
        size = mask.nbytes + _OVERHEAD_BYTES
        with self._lock:
            if key in self._masks or size > self._max_bytes:
                return
            self._masks[key] = mask
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, old = self._masks.popitem(last=False)
                self._bytes -= old.nbytes + _OVERHEAD_BYTES
