"""The arithmetic of admission, on a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from service.edge.admission import SLOT, Admission, Rates, Slot
from service.edge.middleware import Edge
from service.errors import Overloaded, TooMany
from service.http.responses import Answer
from service.telemetry.metrics import Metrics


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def busy(admission: Admission, clock: Clock, seconds: float, times: int) -> None:
    """One request after another that takes so long."""
    for _ in range(times):
        slot = admission.enter()
        clock.now += seconds
        slot.leave()


def fill(admission: Admission) -> list[Slot]:
    """All the slots there are now."""
    taken = []
    while not admission.full:
        taken.append(admission.enter())
        assert len(taken) < 10_000
    return taken


def test_the_queue_is_bounded_and_is_free_again(clock: Clock) -> None:
    seen: list[int] = []
    admission = Admission(3, 1.0, changed=seen.append, clock=clock)
    taken = fill(admission)
    assert len(taken) == 3
    with pytest.raises(Overloaded):
        admission.enter()
    taken[0].leave()
    taken[0].leave()
    assert len(fill(admission)) == 1
    assert seen == [1, 2, 3, 2, 3]


def test_a_line_of_callers_who_are_gone_is_passed_over(clock: Clock) -> None:
    admission = Admission(5_000, 1.0, at_once=1, clock=clock)
    first = admission.enter()
    for _ in range(4_000):
        assert admission.line_up(Slot.leave, lambda: None)
    first.leave()
    begun: list[Slot] = []
    assert admission.line_up(begun.append, lambda: None)
    assert len(begun) == 1
    begun[0].leave()
    assert len(fill(admission)) == 5_000


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_wait_in_line_is_part_of_the_time_of_a_request() -> None:
    async def send(message: Any) -> None:
        pass

    admission = Admission(1, 60.0, clock=lambda: time.monotonic() - 5)
    metrics = Metrics()
    edge = Edge(Answer({}), metrics=metrics, max_body_bytes=1)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], SLOT: admission.enter()}
    await edge(scope | {"app": SimpleNamespace(state=None)}, send, send)  # type: ignore[arg-type]
    lines = metrics.render().decode().splitlines()
    assert 'fullrank_request_seconds_bucket{le="2.0",route="unmatched"} 0.0' in lines
    assert 'fullrank_request_seconds_bucket{le="+Inf",route="unmatched"} 1.0' in lines


@pytest.mark.parametrize(
    ("seconds", "slots"), [(0.001, 64), (0.01, 50), (0.1, 5), (0.5, 1), (9, 1)]
)
def test_what_waits_is_done_within_half_of_the_deadline(
    clock: Clock, seconds: float, slots: int
) -> None:
    """As many slots as the measured time allows, never none: an idle worker takes whatever comes."""
    admission = Admission(64, 1.0, clock=clock)
    busy(admission, clock, seconds, 3)
    assert len(fill(admission)) in (slots, slots - 1 or 1)


def test_two_at_a_time_count_as_half_the_time_each(clock: Clock) -> None:
    admission = Admission(1000, 1.0, clock=clock)
    for _ in range(200):
        pair = [admission.enter(), admission.enter()]
        clock.now += 0.02
        for slot in pair:
            slot.leave()
    assert 45 <= len(fill(admission)) <= 55


def test_idle_time_is_not_taken_for_work(clock: Clock) -> None:
    admission = Admission(64, 1.0, clock=clock)
    for _ in range(50):
        clock.now += 60
        busy(admission, clock, 0.001, 1)
    assert len(fill(admission)) == 64


def test_a_slow_time_is_forgotten(clock: Clock) -> None:
    admission = Admission(64, 1.0, clock=clock)
    busy(admission, clock, 2.0, 5)
    taken = fill(admission)
    assert len(taken) == 1
    assert admission.retry_after == 2
    taken[0].leave()
    busy(admission, clock, 0.001, 100)
    assert len(fill(admission)) > 20


def test_a_batch_weighs_what_it_holds(clock: Clock) -> None:
    admission = Admission(8, 1.0, clock=clock)
    alone = admission.enter()
    alone.weigh(20)  # nobody is before it
    assert admission.full
    alone.leave()
    first, second = admission.enter(), admission.enter()
    second.weigh(7)
    with pytest.raises(Overloaded):
        first.weigh(2)
    first.leave()
    second.leave()
    assert len(fill(admission)) == 8


def test_the_line_moves_in_order_and_a_few_at_a_time(clock: Clock) -> None:
    admission = Admission(6, 1000.0, at_once=2, clock=clock)
    begun: list[tuple[int, Slot]] = []

    def begin(number: int) -> Callable[[Slot], None]:
        return lambda slot: begun.append((number, slot))

    def never() -> None:
        raise AssertionError

    let_in = [admission.line_up(begin(number), never) for number in range(8)]
    assert let_in == [True] * 6 + [False] * 2
    for done in range(6):
        assert [number for number, _ in begun] == list(range(min(6, done + 2)))
        begun[done][1].leave()
    assert not admission.full


def test_who_waited_too_long_is_told_so_and_never_begun(clock: Clock) -> None:
    admission = Admission(6, 1.0, at_once=1, clock=clock)
    slots: list[Slot] = []
    late: list[int] = []
    for number in range(3):
        assert admission.line_up(slots.append, partial(late.append, number))
        clock.now += 0.3
    clock.now += 0.5  # the first two are over, the third is not
    slots[0].leave()
    assert late == [1]
    assert len(slots) == 2
    slots[1].leave()
    assert len(fill(admission)) >= 1


def test_a_client_has_a_burst_and_then_a_rate(clock: Clock) -> None:
    rates = Rates(2.0, 3, clients=2, clock=clock)
    for _ in range(3):
        rates.spend("a")
    with pytest.raises(TooMany) as error:
        rates.spend("a")
    assert error.value.headers == {"Retry-After": "1"}
    rates.spend("b")
    clock.now += 0.5
    rates.spend("a")
    with pytest.raises(TooMany):
        rates.spend("a")
    clock.now += 1000
    for _ in range(3):
        rates.spend("a")
    with pytest.raises(TooMany):
        rates.spend("a")


def test_only_so_many_clients_are_remembered(clock: Clock) -> None:
    rates = Rates(0.1, 1, clients=100, clock=clock)
    for i in range(1000):
        rates.spend(f"client {i}")
    assert len(rates._buckets) == 100


def test_networks_are_counted_by_ipv6() -> None:
    from service.edge.guard import _network

    assert _network("192.0.2.7") == "192.0.2.7"
    assert _network("::ffff:192.0.2.7") == "192.0.2.7"
    assert _network("2001:db8::1") == _network("2001:db8::ffff:1") != _network("2001:db8:0:1::1")
    assert _network("unix:") == "unix:"
