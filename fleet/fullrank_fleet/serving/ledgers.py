"""Copies that a shard keeps of what ads have spent at each router.

A router counts clicks, and a shard has the ads with their budgets. So each question about a page has an excerpt of the
router's ledger: its last changes. A shard that lacks earlier ones says so, and is asked again with those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from fullrank_service.ads.ledger import Excerpt, Ledger

# Routers whose ledgers are kept; those that asked last.
_MAX_COPIES = 64


@dataclass(slots=True)
class _Copy:
    last: int = 0
    ledger: Ledger = field(default_factory=Ledger)


class LedgerCopies:
    """The ledgers of routers, as one shard needs them. Any thread may call any method.

    Args:
        owns: Whether the shard has a document with this id, or would have it.
    """

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        # The one that was used last comes last.
        self._copies: dict[tuple[str, str], _Copy] = {}
        self._lock = threading.Lock()

    def updated(self, excerpt: Excerpt) -> Ledger | int:
        """Bring the copy of a ledger up to date.

        Args:
            excerpt: Of the ledger.

        Returns:
            The copy; or the last change that it has, if that is before what the excerpt continues.
        """
        key = excerpt.source, excerpt.collection
        with self._lock:
            copy = self._copies.pop(key, None)
            if copy is None:
                copy = _Copy()
            self._copies[key] = copy
            if len(self._copies) > _MAX_COPIES:
                del self._copies[next(iter(self._copies))]
            if copy.last < excerpt.after:
                return copy.last
            for change in excerpt.changes:
                # Another question may have brought later ones.
                if change.change > copy.last and self._owns(change.ad):
                    copy.ledger.note(change)
            copy.last = max(copy.last, excerpt.last)
            for ad, until in excerpt.denied:
                copy.ledger.deny(excerpt.collection, ad, until)
        return copy.ledger
