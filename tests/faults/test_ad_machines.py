"""Eight services, each a machine of its own, share a budget while Redis is killed and comes back without its data."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.storage.documents import Document
from fullrank_service.ads.counts import FILE, Counts
from fullrank_service.ads.leases import SLICE
from tests.api.support import CORPUS, make_bundle, redis_process, served

MACHINES = 8
PRICE, BUDGET = 0.5, 400.0
AD = {"adomain": ["a.example"], "price": PRICE, "budget": {"amount": BUDGET}}
MATCH = {
    "page": {"text": "copy files"},
    "placements": [{"id": "top"}],
    "targeting": {"title": "sponsored files"},
}


class Machine(threading.Thread):
    """A real service, and people who click on the ad as fast as it answers."""

    def __init__(self, root: Path, number: int, environment: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.root, self.number, self.environment = root, number, environment
        self.results, self.asked = Counter[str](), 0
        self.is_ready, self.may_click, self.stop = (threading.Event() for _ in range(3))

    def run(self) -> None:
        with served(self.root, **self.environment) as url, httpx.Client(base_url=url) as client:
            self.is_ready.set()
            self.may_click.wait()
            while not self.stop.is_set():
                self.results[self.click(client)] += 1

    def click(self, client: httpx.Client) -> str:
        """Ask for a page as a new person, and click on its ad."""
        self.asked += 1
        who = {"id": f"{self.number} {self.asked}"}
        reply = client.post("/v1/match", json=MATCH | {"user": who}, timeout=60).json()
        hits = reply["placements"][0]["hits"]
        if not hits:
            time.sleep(0.05)
            return "no ad"
        at = time.time() * 1000
        events: list[dict[str, Any]] = [
            {"action_name": kind, "timestamp": at, "event_attributes": {"token": hits[0]["token"]}}
            for kind in ("impression", "click")
        ]
        verdicts = client.post("/v1/events", json=events, timeout=60).json()["verdicts"]
        return str(verdicts[1]["ad"])

    def spent(self) -> float:
        """Read what the machine has charged."""
        counts = Counts(self.root / FILE)
        total = sum(found.total for found in counts.spent_after(0))
        counts.close()
        return total


def spent_of(machines: list[Machine]) -> float:
    return sum(machine.spent() for machine in machines)


@pytest.mark.slow
def test_eight_services_do_not_overspend_though_redis_is_killed(tmp_path: Path) -> None:
    first = tmp_path / "0"
    ad = Document("ad", {"title": "sponsored files", "text": "copy files", "ad": AD})
    make_bundle(first, "ads", [*CORPUS, ad])
    roots = [first, *(tmp_path / str(number) for number in range(1, MACHINES))]
    for root in roots[1:]:
        shutil.copytree(first, root)
    with ExitStack() as stack:
        folder = tmp_path / "redis"
        folder.mkdir()
        url, process = stack.enter_context(redis_process(folder))
        environment = {
            "FULLRANK_REDIS_URL": url,
            "FULLRANK_AD_SHARED_BUDGETS": "true",
            "FULLRANK_EVENTS_KEY": str(tmp_path / "events.key"),
            # The machine of a test is busy; one that is late is not one without Redis.
            "FULLRANK_REDIS_TIMEOUT_MS": "500",
        }
        machines = [Machine(root, number, environment) for number, root in enumerate(roots)]

        def stop() -> None:
            for machine in machines:
                machine.stop.set()
                machine.may_click.set()
            for machine in machines:
                machine.join(60)

        stack.callback(stop)
        for machine in machines:
            machine.start()
        assert all(machine.is_ready.wait(120) for machine in machines)
        for machine in machines:
            machine.may_click.set()

        def wait(check: Any, seconds: float) -> None:
            end = time.monotonic() + seconds
            while not check():
                assert time.monotonic() < end, [dict(m.results) for m in machines]
                time.sleep(0.1)

        wait(lambda: spent_of(machines) > BUDGET / 4, 120)
        process.kill()
        process.wait()
        before = spent_of(machines)
        for machine in machines:
            machine.results.clear()
        wait(lambda: all(machine.results["over_budget"] for machine in machines), 120)
        alone = spent_of(machines)
        # The rest of a slice for each; what was being leased when Redis was killed is one more.
        assert alone - before <= MACHINES * 2 * max(SLICE * BUDGET, PRICE) + 1e-6
        (folder / "redis.sock").unlink(missing_ok=True)
        stack.enter_context(redis_process(folder))
        wait(lambda: spent_of(machines) >= BUDGET * (1 - MACHINES * SLICE) - 1e-6, 240)
        time.sleep(7)  # longer than an ad stays out after a denial
        stop()
        spent = spent_of(machines)
    alone = (alone - before) / BUDGET
    print(f"spent {spent / BUDGET:.4f} of the budget, {alone:.4f} without Redis")  # noqa: T201
    assert spent <= BUDGET * 1.02
    assert spent <= BUDGET + 1e-6
