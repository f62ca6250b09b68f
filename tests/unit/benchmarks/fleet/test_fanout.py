"""The simulation against queueing theory and order statistics."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fleet.fanout import Load, Machine, one_client, simulate

EXPONENTIAL = np.random.default_rng(3).exponential(0.01, 20_000)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_one_shard_with_one_core_waits_as_theory_says(busy: float) -> None:
    mean = float(EXPONENTIAL.mean())
    found = simulate(EXPONENTIAL, Load(1, 1, 1, busy / mean), 60_000, seed=1)
    # M/M/1: the mean time in the system is s / (1 - busy).
    assert found.seconds.mean() == pytest.approx(mean / (1 - busy), rel=0.12)
    assert found.busy == pytest.approx(busy, rel=0.03)
    assert found.hedged == 0


def test_two_cores_share_one_queue() -> None:
    mean, busy = float(EXPONENTIAL.mean()), 0.7
    found = simulate(EXPONENTIAL, Load(1, 2, 1, 2 * busy / mean), 60_000, seed=2)
    # M/M/2: s / (1 - busy²).
    assert found.seconds.mean() == pytest.approx(mean / (1 - busy**2), rel=0.1)


def test_without_queues_an_answer_is_the_slowest_of_all_shards() -> None:
    found = simulate(EXPONENTIAL, Load(16, 64, 1, 1.0), 4_000, seed=4)
    # The median of the largest of 16 is the quantile 0.5^(1/16) of one.
    assert found.percentile(0.5) == pytest.approx(
        float(np.quantile(EXPONENTIAL, 0.5 ** (1 / 16))), rel=0.05
    )


def test_the_router_sends_to_one_shard_after_the_other() -> None:
    found = simulate(np.array([0.001]), Load(10, 8, 1, 1.0, router_s=0.0005), 500, seed=5)
    assert found.percentile(0.5) == pytest.approx(0.001 + 10 * 0.0005)


def test_hedges_stay_within_their_share_and_cut_the_tail() -> None:
    usual = np.random.default_rng(7).uniform(0.002, 0.003, 980)
    rare = np.concatenate([usual, np.full(20, 0.2)])
    plain = simulate(rare, Load(8, 4, 2, 20.0, hedges=0.0), 8_000, seed=6)
    hedged = simulate(rare, Load(8, 4, 2, 20.0), 8_000, seed=6)
    assert 0.0 < hedged.hedged <= 0.05
    assert hedged.percentile(0.99) < plain.percentile(0.99) / 4


def test_routers_of_several_fleets_send_at_the_same_time() -> None:
    load = Load(10, 8, 1, 1.0, router_s=0.0005, fan_out=5)
    assert simulate(np.array([0.001]), load, 500, seed=5).percentile(0.5) == pytest.approx(
        0.001 + 5 * 0.0005
    )


def test_one_client_takes_the_cores_of_one_machine() -> None:
    # The router has one of two cores for 2 + 4 · 1 ms. Each shard takes 3 ms: the first from 3 ms on, on the other
    # core, the next two from 6 on, on either, the last from 9 on.
    machine = Machine(2, 0.002, 0.001, 0.0005)
    found = one_client(np.array([0.0025]), 4, machine, 10, seed=1)
    assert found == pytest.approx(np.full(10, 0.012))
    # With a core for each the last one is sent at 6 ms.
    assert one_client(
        np.array([0.0025]), 4, Machine(5, 0.002, 0.001, 0.0005), 10, seed=1
    ) == pytest.approx(np.full(10, 0.009))
