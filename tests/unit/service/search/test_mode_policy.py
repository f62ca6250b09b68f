"""Mode and thread of a search: exact while it is quick enough, and again as soon as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fullrank.bundle import Bundle
from fullrank_service.search.ranking import SearchModePolicy


def stub(id: str, *modes: str) -> Bundle:
    made: Any = SimpleNamespace(bundle_id=id, retriever=SimpleNamespace(modes=modes))
    return cast(Bundle, made)


def test_an_explicit_mode_is_used() -> None:
    policy, bundle = SearchModePolicy(0.01), stub("a", "exact", "fast")
    policy.observe_exact(bundle, 1.0)
    assert policy.mode(bundle, "exact") == "exact"
    assert SearchModePolicy(0.01).mode(bundle, "fast") == "fast"


def test_auto_is_exact_within_the_budget_and_fast_above_it() -> None:
    policy, bundle, other = (
        SearchModePolicy(0.01),
        stub("a", "exact", "fast"),
        stub("b", "exact", "fast"),
    )
    assert policy.mode(bundle, "auto") == "exact"
    policy.observe_exact(bundle, 0.009)
    assert policy.mode(bundle, "auto") == "exact"
    for _ in range(40):
        policy.observe_exact(bundle, 0.02)
    assert policy.mode(bundle, "auto") == "fast"
    assert policy.mode(other, "auto") == "exact"


def test_a_bundle_without_a_fast_mode_stays_exact() -> None:
    policy, bundle = SearchModePolicy(0.01), stub("a", "exact")
    policy.observe_exact(bundle, 5.0)
    assert policy.mode(bundle, "auto") == "exact"


def test_exact_comes_back_when_searches_get_quicker() -> None:
    policy, bundle = SearchModePolicy(0.01), stub("a", "exact", "fast")
    policy.observe_exact(bundle, 0.02)
    modes = []
    for _ in range(64 * 40):
        modes.append(policy.mode(bundle, "auto"))
        if modes[-1] == "exact":
            policy.observe_exact(bundle, 0.001)
    assert modes[0] == "fast"
    assert modes.count("fast") < 64 * 20
    assert set(modes[-64:]) == {"exact"}


def test_a_search_runs_on_the_event_loop_while_it_is_short() -> None:
    policy, bundle = SearchModePolicy(1.0, inline_s=0.001), stub("a", "exact", "fast")
    assert not policy.fits_event_loop(bundle, "fast")  # nothing is known yet
    policy.observe_plain(bundle, "fast", 0.0005)
    policy.observe_plain(bundle, "exact", 0.002)
    assert policy.fits_event_loop(bundle, "fast")
    assert not policy.fits_event_loop(bundle, "exact")
    assert not policy.fits_event_loop(stub("b", "exact", "fast"), "fast")
    policy.observe_plain(bundle, "fast", 0.1)
    assert not policy.fits_event_loop(bundle, "fast")
    for _ in range(100):
        policy.observe_plain(bundle, "fast", 0.0005)
    assert policy.fits_event_loop(bundle, "fast")


def test_a_share_of_the_searches_on_the_event_loop_is_measured_and_every_other_search() -> None:
    policy, bundle = SearchModePolicy(1.0, inline_s=0.001), stub("a", "exact", "fast")
    policy.observe_plain(bundle, "fast", 0.0005)
    assert all(policy.measures_plain(bundle, "exact") for _ in range(1000))
    measured = sum(policy.measures_plain(bundle, "fast") for _ in range(4000))
    assert 400 < measured < 600  # 500, within five standard errors


def test_no_search_runs_on_the_event_loop_without_a_limit_for_it() -> None:
    policy, bundle = SearchModePolicy(1.0), stub("a", "exact")
    policy.observe_plain(bundle, "exact", 0.0)
    assert not policy.fits_event_loop(bundle, "exact")
