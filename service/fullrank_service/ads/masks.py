"""A cache of what the rules of pages forbid: a site sends the same rules with each of its pages.

A mask depends on the ads and the rules alone, so it stays right as long as the ads do. What changes with time is not in
it: the days of an ad, budgets and caps are looked at for each page.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import NamedTuple

from cachetools import LRUCache
from cachetools.keys import hashkey

from fullrank.ads import AdRules, PriceFloor
from fullrank.ads.table import Mask
from fullrank.live.part import Part

# For all sites of one worker; a mask takes one byte an ad.
MAX_BYTES = 32 << 20
# What an entry takes besides its mask and the texts of its rules, and what a text takes besides its characters.
_ENTRY_BYTES, _TEXT_BYTES = 2048, 100


class _Entry(NamedTuple):
    mask: Mask
    size: int


class RuleMasks:
    """The cache, for all ranking threads; it drops the least recently used masks first.

    Args:
        max_bytes: Of all masks and their rules.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: LRUCache[Hashable, _Entry] = LRUCache(max_bytes, lambda entry: entry.size)
        self._lock = Lock()

    def forbidden(self, part: Part, rules: AdRules, floor: PriceFloor | None) -> Mask | None:
        """Return the ads of a part that a placement forbids at any time, read-only bool (m,); None without ads.

        Args:
            part: The documents.
            rules: Of the page.
            floor: Of the placement; None: any price.
        """
        table = part.ads
        if table is None:
            return None
        # Computes the hash of the rules once.
        key = hashkey(part.key, rules, floor)
        with self._lock, suppress(KeyError):
            return self._entries[key].mask
        mask = rules.forbids(table)
        if floor is not None:
            mask |= floor.forbids(table)
        mask.flags.writeable = False
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._entries[key] = _Entry(mask, mask.nbytes + _rules_bytes(rules))
        return mask


def _rules_bytes(rules: AdRules) -> int:
    lists = (rules.bcat, rules.acat, rules.badv, rules.wseat, rules.bseat)
    texts = list(chain.from_iterable(found or () for found in lists))
    return _ENTRY_BYTES + sum(map(len, texts)) + _TEXT_BYTES * (len(texts) + len(rules.battr))
