"""Searches that an experiment interleaves, in the queue of a worker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fullrank_service.base.experiment import Experiment
from fullrank_service.http.admission import Admission, Slot
from fullrank_service.http.deps import RequestModel, Serving
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.ruled import Trying
from fullrank_service.search.schemas import SearchRequest

pytestmark = pytest.mark.anyio


async def test_each_search_of_a_batch_counts_as_two_rankings() -> None:
    async def rank(*_: Any) -> Ranked:
        return Ranked([], True, 0, True, {}, "exact", 0)

    async def view(*_: Any) -> None: ...

    experiment = Experiment("b", 1.0, time.time(), 1.0)
    models: Any = {"a": None, "b": None}
    serving = Serving(1, "a", None, models, experiment)
    ranker: Any = SimpleNamespace(rank=rank)
    trying = Trying(ranker, cast(Any, SimpleNamespace(view=view)), 0.0)
    taken: list[int] = []

    async def batch(slot: Slot) -> None:
        slot.set_cost(32)
        for number in range(32):
            request = RankRequest(SearchRequest(query=f"query {number}"), 10)
            await trying.rank(RequestModel(serving, slot), cast(Any, None), request, "me", 0)

    await Admission(64, 60.0, on_change=taken.append).run(batch)
    assert taken[-2:] == [64, 0]
