"""Accounts that click for their own documents, whatever people search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.clicks.sessions import Collection, Logged, People
from benchmarks.clicks.worlds import PLACES
from fullrank.encoding import Int64
from fullrank.events.lists import ServedList
from fullrank.events.records import Event

SHARE = 0.3
_DOCUMENTS = 20


def spam(
    collection: Collection, accounts: int, seed: int
) -> Callable[[Logged, Int64, People], Logged]:
    """Return what adds clicks on 20 documents to a round, until three clicks in ten are theirs.

    The accounts know their way: they search what shows their documents on the first page, and click only those.

    Args:
        collection: What people search.
        accounts: That take turns.
        seed: Of all random numbers.
    """
    chosen = np.random.default_rng([seed, 20]).choice(
        len(collection.documents), _DOCUMENTS, replace=False
    )

    def add(honest: Logged, rankings: Int64, people: People) -> Logged:
        queries, places = np.nonzero(np.isin(rankings[:, :PLACES], chosen))
        count = round(len(honest.events) * SHARE / (1 - SHARE))
        if not len(queries):
            return honest
        rng = np.random.default_rng([seed, len(honest.events)])
        lists, events = list(honest.lists), list(honest.events)
        first, last = honest.lists[0].at, honest.lists[-1].at
        for i, row in enumerate(rng.integers(0, len(queries), count).tolist()):
            query, place = int(queries[row]), int(places[row])
            texts = {"user_id": f"account {i % accounts}"}
            ids = [collection.documents[d] for d in rankings[query, :PLACES].tolist() if d >= 0]
            at = first + (last - first) * i / count
            id = f"{honest.lists[0].query_id}-spam-{i}"
            lists.append(
                ServedList(
                    id,
                    at,
                    collection.queries[query],
                    ids,
                    model=honest.lists[0].model,
                    texts=texts,
                )
            )
            events.append(Event("click", at + 1, {"query_id": id, **texts}, ids[place]))
        return Logged(lists, events)

    return add
