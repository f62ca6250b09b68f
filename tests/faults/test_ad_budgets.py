"""Budgets shared by machines through a real Redis, which is killed and comes back without its data."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fullrank.ads import Ad, parse_ad
from fullrank.events.records import parse_event
from fullrank_service.ads.counts import FILE, Counts
from fullrank_service.ads.events import AdEvents
from fullrank_service.ads.leases import SLICE, Leases
from fullrank_service.ads.tokens import Placed
from fullrank_service.telemetry.metrics import Metrics
from tests.api.support import redis_process

pytestmark = pytest.mark.anyio

MACHINES = 8
QUIET_S = 0.6
PRICE = 0.5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Machine:
    """One machine with its file of counts, and clients that click as fast as it answers."""

    def __init__(self, folder: Path, url: str, ad: Ad, number: int) -> None:
        own = folder / str(number)
        own.mkdir()
        self.path, self.number, self.clicks = own / FILE, number, 0
        self.results = Counter[str | None]()

        async def find(collection: str, id: str) -> Ad:
            return ad

        leases = Leases(url, 2.0, quiet_s=QUIET_S, look_s=0.05)
        key = folder / "events.key"
        self.events = AdEvents(self.path, key, Metrics(), find, leases)
        self.events.start()

    async def click(self) -> str | None:
        """Report an impression and a click of a new person."""
        self.clicks += 1
        who = f"{self.number} {self.clicks}"
        [token] = self.events.tokens("ads", "m1", who, [Placed("a", PRICE, 1.0, "top")])
        at = time.time() * 1000
        given: list[dict[str, Any]] = [
            {"action_name": kind, "timestamp": at, "event_attributes": {"token": token}}
            for kind in ("impression", "click")
        ]
        events = [parse_event(one, time.time()) for one in given]
        _, result = await self.events.count(events, "", is_bot=False)
        self.results[result] += 1
        return result

    async def click_for(self, seconds: float) -> None:
        """Click for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.click()
            await asyncio.sleep(0.001)

    def spent(self) -> float:
        """Read what the machine has spent."""
        counts = Counts(self.path)
        total = sum(found.total for found in counts.spent_after(0))
        counts.close()
        return total


async def clicking(machines: list[Machine], seconds: float) -> float:
    """Let all machines click for some time; give what all have spent by then."""
    await asyncio.gather(*(machine.click_for(seconds) for machine in machines))
    return sum(machine.spent() for machine in machines)


@pytest.mark.sweep
async def test_eight_machines_overspend_nothing_though_redis_is_killed(tmp_path: Path) -> None:
    budget = 300.0
    ad = parse_ad({"adomain": ["a.example"], "price": PRICE, "budget": {"amount": budget}})
    with ExitStack() as stack:
        url, process = stack.enter_context(redis_process(tmp_path))
        machines = [Machine(tmp_path, url, ad, number) for number in range(MACHINES)]
        before, end = 0.0, time.monotonic() + 60
        # Denials of the first moments, when Redis leases nothing yet, do not count below.
        while before == 0 and time.monotonic() < end:
            before = await clicking(machines, 0.1)
        assert 0 < before < budget
        process.kill()
        process.wait()
        for machine in machines:
            machine.results.clear()
        (tmp_path / "redis.sock").unlink(missing_ok=True)
        alone = before
        while not any(m.results["over_budget"] for m in machines) and time.monotonic() < end:
            alone = await clicking(machines, 0.1)
        # Without Redis each has at most the rest of its slice.
        assert alone - before <= MACHINES * max(SLICE * budget, PRICE) + 1e-6
        assert any(m.results["over_budget"] for m in machines)
        # It comes back empty; what was spent is not forgotten.
        stack.enter_context(redis_process(tmp_path))
        spent = alone
        while spent < budget * (1 - MACHINES * SLICE) and time.monotonic() < end:
            spent = await clicking(machines, 0.1)
        spent = await clicking(machines, 0.1)
        for machine in machines:
            await machine.events.close()
    print(f"spent {spent / budget:.4f} of the budget")  # noqa: T201
    assert spent <= budget * 1.02
    assert spent <= budget + 1e-6
    assert spent >= budget * (1 - MACHINES * SLICE) - 1e-6
