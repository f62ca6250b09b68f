"""Exact while it is quick enough, and again once it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fullrank.bundle.catalog import Bundle
from service.pace import Pace


def stub(id: str, *modes: str) -> Bundle:
    made: Any = SimpleNamespace(bundle_id=id, retriever=SimpleNamespace(modes=modes))
    return cast(Bundle, made)


def test_what_is_wished_is_done() -> None:
    pace, bundle = Pace(0.01), stub("a", "exact", "fast")
    pace.observe(bundle, 1.0)
    assert pace.mode(bundle, "exact") == "exact"
    assert Pace(0.01).mode(bundle, "fast") == "fast"


def test_auto_is_exact_within_the_budget_and_fast_beyond() -> None:
    pace, bundle, other = Pace(0.01), stub("a", "exact", "fast"), stub("b", "exact", "fast")
    assert pace.mode(bundle, "auto") == "exact"
    pace.observe(bundle, 0.009)
    assert pace.mode(bundle, "auto") == "exact"
    for _ in range(40):
        pace.observe(bundle, 0.02)
    assert pace.mode(bundle, "auto") == "fast"
    assert pace.mode(other, "auto") == "exact"


def test_a_bundle_without_a_fast_mode_stays_exact() -> None:
    pace, bundle = Pace(0.01), stub("a", "exact")
    pace.observe(bundle, 5.0)
    assert pace.mode(bundle, "auto") == "exact"


def test_exact_comes_back_when_there_is_less_to_do() -> None:
    pace, bundle = Pace(0.01), stub("a", "exact", "fast")
    pace.observe(bundle, 0.02)
    modes = []
    for _ in range(64 * 40):
        modes.append(pace.mode(bundle, "auto"))
        if modes[-1] == "exact":
            pace.observe(bundle, 0.001)
    assert modes[0] == "fast"
    assert modes.count("fast") < 64 * 20
    assert set(modes[-64:]) == {"exact"}


def test_a_search_stays_on_the_event_loop_while_it_is_brief() -> None:
    pace, bundle = Pace(1.0, inline_s=0.001), stub("a", "exact", "fast")
    assert not pace.brief(bundle, "fast")  # nothing is known yet
    pace.observe_plain(bundle, "fast", 0.0005)
    pace.observe_plain(bundle, "exact", 0.002)
    assert pace.brief(bundle, "fast")
    assert not pace.brief(bundle, "exact")
    assert not pace.brief(stub("b", "exact", "fast"), "fast")
    pace.observe_plain(bundle, "fast", 0.1)
    assert not pace.brief(bundle, "fast")
    for _ in range(100):
        pace.observe_plain(bundle, "fast", 0.0005)
    assert pace.brief(bundle, "fast")


def test_without_a_time_for_it_nothing_is_done_on_the_event_loop() -> None:
    pace, bundle = Pace(1.0), stub("a", "exact")
    pace.observe_plain(bundle, "exact", 0.0)
    assert not pace.brief(bundle, "exact")
