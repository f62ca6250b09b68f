"""Caps shared by machines through a real Redis, which is killed and comes back without its data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fullrank.ads import Ad, parse_ad
from fullrank.events.records import parse_event
from fullrank_service.ads.counts import FILE
from fullrank_service.ads.events import AdEvents
from fullrank_service.ads.leases import Leases
from fullrank_service.ads.shared_caps import SharedCaps
from fullrank_service.ads.tokens import Placed
from fullrank_service.telemetry.metrics import Metrics
from tests.api.support import redis_process

pytestmark = pytest.mark.anyio

AD = parse_ad({"adomain": ["a.example"], "cap": {"count": 2, "seconds": 3600}})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def find(collection: str, id: str) -> Ad:
    """Return the ad of every document."""
    return AD


def machine(folder: Path, url: str, name: str) -> AdEvents:
    """One machine with its file of counts; all have the key of the log."""
    (folder / name).mkdir(exist_ok=True)
    leases = Leases(url, 2.0, quiet_s=0.1, look_s=0.02)
    caps = SharedCaps(url, 2.0, look_s=0.02)
    events = AdEvents(folder / name / FILE, folder / "key", Metrics(), find, leases, caps)
    events.start()
    return events


async def see(events: AdEvents, who: str, ad: str, *, reports: int = 1) -> None:
    """Serve an ad to a person, and report the same impression some times."""
    [token] = events.tokens("ads", "m1", who, [Placed(ad, 1.0, 1.0, "top")])
    given: dict[str, Any] = {
        "action_name": "impression",
        "timestamp": time.time() * 1000,
        "event_attributes": {"token": token},
    }
    for number in range(reports):
        event = parse_event(given, time.time())
        [result] = await events.count([event], "", is_bot=False)
        assert result == ("repeated" if number else "impression")


async def until(check: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until something holds, at most 20 s."""
    end = time.monotonic() + 20
    while not await check():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_machines_count_what_a_person_has_seen_on_any_of_them(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url, process = stack.enter_context(redis_process(tmp_path))
        one, other = (machine(tmp_path, url, name) for name in ("one", "other"))
        await see(one, "u1", "a", reports=2)
        await see(other, "u1", "a b")
        for events in (one, other):
            assert await events.seen("ads", "u1") == {"a": 1, "a b": 1}
            assert await events.seen("ads", "u2") == {}
            assert await events.seen("others", "u1") == {}

        # Without Redis each machine counts its own.
        process.kill()
        process.wait()
        await see(one, "u1", "c")
        assert await one.seen("ads", "u1") == {"a": 1, "c": 1}
        assert await other.seen("ads", "u1") == {"a b": 1}

        # It comes back empty; the machines add what they have counted.
        (tmp_path / "redis.sock").unlink(missing_ok=True)
        stack.enter_context(redis_process(tmp_path))

        async def is_whole() -> bool:
            whole = {"a": 1, "a b": 1, "c": 1}
            return await one.seen("ads", "u1") == whole == await other.seen("ads", "u1")

        await until(is_whole)
        # A running machine adds its own impressions again when it notices the new Redis, which may be after an erasure.
        await other.close()
        await one.erase("u1")
        assert await one.seen("ads", "u1") == {}
        other = machine(tmp_path, url, "other")
        assert await other.seen("ads", "u1") == {"a b": 1}
        for events in (one, other):
            await events.close()


async def test_a_restarted_machine_and_a_stopped_redis_lose_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url, process = stack.enter_context(redis_process(tmp_path))
        one, other = (machine(tmp_path, url, name) for name in ("one", "other"))
        process.kill()
        process.wait()
        await see(one, "u1", "a")
        await one.close()
        (tmp_path / "redis.sock").unlink(missing_ok=True)
        stack.enter_context(redis_process(tmp_path))
        restarted = machine(tmp_path, url, "one")

        async def is_known() -> bool:
            return await other.seen("ads", "u1") == {"a": 1}

        await until(is_known)
        for events in (restarted, other):
            await events.close()
