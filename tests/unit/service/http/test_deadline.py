"""A deadline behaves as asyncio.timeout_at does, whether or not the coroutine waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fullrank_service.http.admission import DeadlinePassed, within

pytestmark = pytest.mark.anyio
Step = Callable[[], Awaitable[object]]


def in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def after(step: Step, result: object) -> object:
    await step()
    return result


async def at_once() -> None:
    pass


async def one_turn() -> None:
    await asyncio.sleep(0)


async def several_waits() -> None:
    for _ in range(3):
        await asyncio.sleep(0.001)
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: None)


@pytest.mark.parametrize("step", [at_once, one_turn, several_waits])
async def test_the_result_is_that_of_the_coroutine(step: Step) -> None:
    assert await within(after(step, 7), in_seconds(60)) == 7


@pytest.mark.parametrize("step", [at_once, one_turn, several_waits])
@pytest.mark.parametrize("kind", [ValueError, TimeoutError])
async def test_an_error_of_the_coroutine_is_raised_unchanged(
    step: Step, kind: type[Exception]
) -> None:
    own = kind("own")

    async def fail() -> None:
        await step()
        raise own

    with pytest.raises(kind) as caught:
        await within(fail(), in_seconds(60))
    assert caught.value is own


async def test_a_coroutine_that_does_not_wait_needs_no_time() -> None:
    assert await within(after(at_once, 7), in_seconds(-60)) == 7


@pytest.mark.parametrize("seconds", [-60, 0.01])
async def test_a_coroutine_that_waits_is_cancelled_at_its_deadline(seconds: float) -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait too
            ended.append(True)

    with pytest.raises(DeadlinePassed):
        await within(wait(), in_seconds(seconds))
    assert ended
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_cancelling_the_caller_cancels_the_coroutine() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    task = asyncio.create_task(within(wait(), in_seconds(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def test_a_coroutine_may_survive_a_cancellation() -> None:
    async def stubborn() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return 7

    task = asyncio.create_task(within(stubborn(), in_seconds(60)))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 7


async def test_deadlines_nest() -> None:
    async def inner() -> str:
        try:
            await within(after(asyncio.Event().wait, None), in_seconds(0.01))
        except DeadlinePassed:
            await asyncio.sleep(0)
            return "inner"
        return "none"

    assert await within(inner(), in_seconds(60)) == "inner"
