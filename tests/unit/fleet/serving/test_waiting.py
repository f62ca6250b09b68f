"""Waiting for a process: as long as it answers pings, but not for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from fullrank_fleet.serving import waiting
from fullrank_fleet.serving.waiting import NoAnswer, answered

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.01)


async def later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def lives() -> None:
    pass


async def freezes() -> None:
    await asyncio.sleep(3600)


async def dies() -> None:
    raise ConnectionError("restarting")


async def test_an_answer_may_take_longer_than_a_silent_process_is_awaited() -> None:
    assert await answered(later(0.4), lives, limit_s=60, silent_s=0.1) == "done"


@pytest.mark.parametrize("ping", [freezes, dies])
async def test_a_process_that_answers_no_pings_is_given_up(ping: object) -> None:
    began = time.monotonic()
    with pytest.raises(NoAnswer, match=r"no ping was answered for 0\.2 s"):
        await answered(later(3600), ping, limit_s=60, silent_s=0.2)  # type: ignore[arg-type]
    assert time.monotonic() - began < 2


async def test_a_process_that_answers_pings_alone_is_given_up_at_the_limit() -> None:
    with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
        await answered(later(3600), lives, limit_s=0.2, silent_s=10)


async def test_a_process_may_miss_pings() -> None:
    """Ray refuses calls of a process that it starts again; the answer comes afterwards."""
    pings = 0

    async def ping() -> None:
        nonlocal pings
        pings += 1
        if pings % 3:
            raise ConnectionError

    assert await answered(later(0.5), ping, limit_s=60, silent_s=0.25) == "done"


async def test_errors_of_the_answer_are_raised() -> None:
    async def fails() -> None:
        raise ValueError("no such version")

    with pytest.raises(ValueError, match="no such version"):
        await answered(fails(), lives, limit_s=60)


async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await answered(later(3600), freezes, limit_s=60)
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before


async def test_an_answer_that_comes_together_with_that_of_a_ping_ends_the_pings() -> None:
    """The waiting for pings is cancelled between the answer of one and its own next step."""
    before = asyncio.all_tasks()
    pinged, both = asyncio.Event(), asyncio.get_running_loop().create_future()
    pings = 0

    async def answer() -> str:
        return str(await both)

    async def ping() -> None:
        nonlocal pings
        pings += 1
        pinged.set()
        await both

    async with asyncio.timeout(5):
        asked = asyncio.ensure_future(answered(answer(), ping, limit_s=60))
        await pinged.wait()
        both.set_result("done")
        assert await asked == "done"
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.01)
    assert pings == 1
