"""Admission on a clock of its own: slots, the queue, deadlines, rates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from fullrank_service.base.errors import Overloaded, TooManyRequests
from fullrank_service.http.admission import Admission, RateLimiter, Slot

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1e9  # deadlines are far in the future of the event loop's clock

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def serve(admission: Admission, clock: Clock, seconds: float, requests: int) -> None:
    """Answer one request after another, each in so many seconds."""

    async def work(slot: Slot) -> None:
        clock.now += seconds

    for _ in range(requests):
        await admission.run(work)


class Requests:
    """Requests that run until they are released."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.slots: list[Slot] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    async def start(self) -> asyncio.Task[None]:
        """Send a request; it is in the queue, running or refused when this returns."""
        task = asyncio.create_task(self.admission.run(self._work()))
        self.tasks.append(task)
        await settle()
        return task

    async def fill(self) -> int:
        """Send requests until one would be refused; gives how many."""
        count = 0
        while not self.admission.full:
            await self.start()
            count += 1
            assert count < 10_000
        return count

    async def release(self, number: int = 0) -> None:
        """Answer the oldest running request, or another one."""
        self._ends.pop(number).set()
        self.slots.pop(number)
        await settle()

    async def release_all(self) -> None:
        while self._ends:
            await self.release()

    def _work(self) -> Callable[[Slot], Awaitable[None]]:
        async def work(slot: Slot) -> None:
            end = asyncio.Event()
            self.slots.append(slot)
            self._ends.append(end)
            await end.wait()

        return work


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_the_queue_is_bounded_and_slots_are_returned(clock: Clock) -> None:
    counts: list[int] = []
    admission = Admission(3, 1.0, on_change=counts.append, clock=clock)
    requests = Requests(admission)
    assert await requests.fill() == 3
    with pytest.raises(Overloaded):
        await (await requests.start())
    await requests.release()
    assert await requests.fill() == 1
    assert counts == [1, 2, 3, 2, 3]
    await requests.release_all()
    assert counts[-1] == 0


async def test_a_failing_request_returns_its_slot(clock: Clock) -> None:
    admission = Admission(1, 1.0, clock=clock)

    async def fail(slot: Slot) -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await admission.run(fail)
    assert not admission.full


async def test_cancelled_requests_leave_the_queue(clock: Clock) -> None:
    admission = Admission(500, 1.0, max_running=1, clock=clock)
    requests = Requests(admission)
    await requests.start()
    waiting = [asyncio.create_task(admission.run(requests._work())) for _ in range(400)]
    await settle()
    for task in waiting:
        task.cancel()
    await settle()
    last = await requests.start()
    assert len(requests.slots) == 1
    await requests.release()
    assert len(requests.slots) == 1
    assert not last.done()
    await requests.release()
    assert await requests.fill() == 500
    await requests.release_all()


async def test_a_request_cancelled_as_its_turn_comes_passes_the_turn_on(clock: Clock) -> None:
    admission = Admission(10, 1.0, max_running=1, clock=clock)
    requests = Requests(admission)
    await requests.start()
    second, third = await requests.start(), await requests.start()
    requests._ends.pop(0).set()
    await asyncio.sleep(
        0
    )  # the first has returned its slot, the second has its turn but has not run
    second.cancel()
    await settle()
    assert second.cancelled()
    assert len(requests.slots) == 2
    assert not third.done()
    await requests.release_all()
    await third


async def test_waiting_in_the_queue_counts_towards_the_deadline() -> None:
    deadline_s = 0.5
    admission = Admission(6, deadline_s, max_running=1)
    requests = Requests(admission)
    first = await requests.start()
    arrived = time.monotonic()
    second = await requests.start()
    for task in (first, second):
        with pytest.raises(Overloaded, match="not ready after"):
            await task
    # On a busy machine the second may get the slot of the first shortly before its own deadline. If the wait did not
    # count, it would keep that slot for as long as the first did.
    assert time.monotonic() < arrived + 2 * deadline_s
    assert not admission.full


async def test_a_timeout_of_the_work_itself_is_not_overload() -> None:
    admission = Admission(6, 60.0)

    async def work(slot: Slot) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await admission.run(work)


@pytest.mark.parametrize(
    ("seconds", "slots"), [(0.001, 64), (0.01, 50), (0.1, 5), (0.5, 1), (9, 1)]
)
async def test_only_as_many_are_admitted_as_half_of_the_deadline_allows(
    clock: Clock, seconds: float, slots: int
) -> None:
    """Never fewer than one: an idle worker admits any request."""
    admission = Admission(64, 1.0, clock=clock)
    await serve(admission, clock, seconds, 3)
    requests = Requests(admission)
    assert await requests.fill() in (slots, slots - 1 or 1)
    await requests.release_all()


async def test_two_requests_at_a_time_count_as_half_the_time_each(clock: Clock) -> None:
    admission = Admission(1000, 1.0, clock=clock)
    requests = Requests(admission)
    for _ in range(200):
        await requests.start()
        await requests.start()
        clock.now += 0.02
        await requests.release_all()
    assert 45 <= await requests.fill() <= 55
    await requests.release_all()


async def test_idle_time_does_not_count_as_work(clock: Clock) -> None:
    admission = Admission(64, 1.0, clock=clock)
    for _ in range(50):
        clock.now += 60
        await serve(admission, clock, 0.001, 1)
    requests = Requests(admission)
    assert await requests.fill() == 64
    await requests.release_all()


async def test_the_mean_recovers_after_slow_requests(clock: Clock) -> None:
    admission = Admission(64, 1.0, clock=clock)
    await serve(admission, clock, 2.0, 5)
    requests = Requests(admission)
    assert await requests.fill() == 1
    assert admission.retry_after == 2
    await requests.release()
    await serve(admission, clock, 0.001, 100)
    assert await requests.fill() > 20
    await requests.release_all()


async def test_a_batch_counts_as_the_rankings_it_holds(clock: Clock) -> None:
    admission = Admission(8, 1.0, clock=clock)
    requests = Requests(admission)
    await requests.start()
    requests.slots[0].set_cost(20)  # the queue is empty, so it is admitted
    assert admission.full
    await requests.release()
    await requests.start()
    await requests.start()
    first, second = requests.slots
    second.set_cost(7)
    with pytest.raises(Overloaded):
        first.set_cost(2)
    await requests.release_all()
    assert await requests.fill() == 8
    await requests.release_all()


async def test_the_queue_moves_in_order_and_a_few_run_at_a_time(clock: Clock) -> None:
    admission = Admission(6, 1000.0, max_running=2, clock=clock)
    requests = Requests(admission)
    assert await requests.fill() == 6
    for done in range(6):
        assert len(requests.slots) == min(2, 6 - done)
        await requests.release()
        assert [task.done() for task in requests.tasks] == [i <= done for i in range(6)]
    assert not admission.full


async def test_a_client_has_a_burst_and_then_a_rate(clock: Clock) -> None:
    rates = RateLimiter(2.0, 3, max_clients=2, clock=clock)
    for _ in range(3):
        rates.spend("a")
    with pytest.raises(TooManyRequests) as error:
        rates.spend("a")
    assert error.value.headers == {"Retry-After": "1"}
    rates.spend("b")
    clock.now += 0.5
    rates.spend("a")
    with pytest.raises(TooManyRequests):
        rates.spend("a")
    clock.now += 1000
    for _ in range(3):
        rates.spend("a")
    with pytest.raises(TooManyRequests):
        rates.spend("a")


async def test_the_client_that_is_forgotten_was_idle_longest(clock: Clock) -> None:
    rates = RateLimiter(0.1, 2, max_clients=2, clock=clock)
    for client in ("a", "b", "a", "c"):
        rates.spend(client)
    # a was seen after b, so c has displaced b.
    with pytest.raises(TooManyRequests):
        rates.spend("a")
    rates.spend("b")
    rates.spend("b")


async def test_ipv6_clients_are_counted_by_network() -> None:
    from fullrank_service.http.guard import _network

    assert _network("192.0.2.7") == "192.0.2.7"
    assert _network("::ffff:192.0.2.7") == "192.0.2.7"
    assert _network("2001:db8::1") == _network("2001:db8::ffff:1") != _network("2001:db8:0:1::1")
    assert _network("unix:") == "unix:"
