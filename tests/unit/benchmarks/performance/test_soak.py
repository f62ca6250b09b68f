"""The soak's own judgement: slopes, and the mistakes that it has to see."""

from __future__ import annotations

import httpx
import pytest

from benchmarks.performance.servers import Server
from benchmarks.performance.soak import Soak, slope


def test_the_slope_is_that_of_a_line_after_the_warm_up() -> None:
    times = [float(t) for t in range(0, 3600, 60)]
    values = [500.0 if t < 600 else 100 + 3 * t / 3600 for t in times]
    found = slope(times, values)
    assert found["per_hour"] == pytest.approx(3)
    assert found["error"] == pytest.approx(0)
    assert found["largest"] < 104


@pytest.mark.parametrize(
    ("status", "content", "lost"),
    [
        (200, {"fields": {"n": 2}}, False),
        (200, {"fields": {"n": 1}}, True),
        (404, {}, True),
    ],
)
def test_a_lost_or_old_document_is_a_mistake(status: int, content: object, lost: bool) -> None:
    run = Soak(Server("http://127.0.0.1", (), ()), "key", [], [])
    run.state["a"] = {"n": 2}
    run.compare("a", httpx.Response(status, json=content))
    assert bool(run.seen.wrong) == lost


def test_a_restored_deleted_document_is_a_mistake() -> None:
    run = Soak(Server("http://127.0.0.1", (), ()), "key", [], [])
    run.state["a"] = None
    run.compare("a", httpx.Response(404, json={}))
    assert not run.seen.wrong
    run.compare("a", httpx.Response(200, json={"fields": {}}))
    assert run.seen.wrong
