"""A fleet on nodes of a network: a slow link, a distant node, a cut link, a head that dies.

Nodes: 1 is the head, 2 has the router, 3 and 4 have one replica of each shard.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from tests.api.support import AUTH, find_redis_server, keys_beside
from tests.fleet.network import HOST, SUBNET, Network, Nodes, address_of, network
from tests.fleet.support import Sets, activate, router, searches, wait_until_served
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROUTER = 2
# Longer than the router and the coordinator need to notice, shorter than Ray needs.
CUT_S = 10.0
# Of a packet, in each direction: another region of the same continent.
DELAY_S = 0.02


@dataclass(frozen=True, slots=True)
class Running:
    network: Network
    nodes: Nodes
    sets: Sets
    url: str

    def metric(self, name: str) -> float:
        [value] = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self._metrics(), re.M)
        return float(value)

    def wait_for_all(self) -> None:
        """Wait until the router may ask every replica, and until all answer it if searches run meanwhile."""
        wait_until(
            lambda: self.metric("fullrank_shard_replicas") == 4, "the router knows four replicas"
        )
        wait_until(self._is_quiet, "the network is quiet", 180)

    def swap(self, version: str) -> subprocess.CompletedProcess[str]:
        return activate(self.nodes.address, self.sets, version, self.nodes.inside(ROUTER))

    def _is_quiet(self) -> bool:
        """Watch calls for two seconds; return whether none failed and every replica may be asked.

        What a slow link has lost is sent again after up to a minute.
        """
        before = self.metric("fullrank_shard_failures_total")
        time.sleep(2)
        is_closed = self.metric("fullrank_shard_breakers_open") == 0
        return is_closed and self.metric("fullrank_shard_failures_total") == before

    def _metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", headers=AUTH).text


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory, joined: Network) -> Iterator[str]:
    """Address of a Redis that every node reaches."""
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    options = ["--bind", f"{SUBNET}.{HOST}", "--protected-mode", "no", "--port", str(port)]
    with subprocess.Popen(
        [find_redis_server(), *options, "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    ) as process:
        yield f"{SUBNET}.{HOST}:{port}"
        process.kill()


@pytest.fixture(scope="module")
def joined() -> Iterator[Network]:
    with network(4) as found:
        yield found


@pytest.fixture(scope="module")
def running(
    joined: Network, redis: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    sets = Sets(tmp_path_factory.mktemp("sets"))
    nodes = Nodes(redis)
    try:
        for number in range(1, 5):
            nodes.start(number)
        folder = tmp_path_factory.mktemp("router")
        with router(
            nodes.address,
            sets.root,
            folder,
            inside=nodes.inside(ROUTER),
            host=address_of(ROUTER),
            FULLRANK_KEYS=str(keys_beside(folder / "state")),
            FULLRANK_ANONYMOUS="search",
        ) as (url, _):
            found = Running(joined, nodes, sets, url)
            assert found.swap(sets.versions[0]).returncode == 0
            wait_until_served(url, sets.versions[0])
            found.wait_for_all()
            yield found
    finally:
        nodes.close()


def test_a_slow_link_is_hedged(running: Running) -> None:
    with searches(running.url, running.sets):
        time.sleep(5)
    hedges = running.metric('fullrank_shard_calls_total{kind="hedge"}')
    with running.network.slowed(4, "64kbit"), searches(running.url, running.sets) as load:
        time.sleep(10)
    load.check()
    assert max(load.seconds) < 2
    assert running.metric('fullrank_shard_calls_total{kind="hedge"}') > hedges
    with searches(running.url, running.sets) as load:
        running.wait_for_all()
    load.check()


def test_distant_replicas_make_searches_later_and_nothing_else(running: Running) -> None:
    with searches(running.url, running.sets) as near:
        time.sleep(5)
    failures = running.metric("fullrank_shard_failures_total")
    with ExitStack() as stack:
        delays = [stack.enter_context(running.network.delayed(n, DELAY_S)) for n in (3, 4)]
        with searches(running.url, running.sets) as far:
            time.sleep(5)
            for version in (running.sets.versions[1], running.sets.versions[0]):
                assert running.swap(version).returncode == 0
                wait_until_served(running.url, version)
    assert min(delay.frames for delay in delays) > 100
    near.check()
    far.check()
    # It asks both shards at once for hits, then for their fields: four delays. One shard after the other: eight.
    added_s = statistics.median(far.seconds) - statistics.median(near.seconds)
    assert 3.6 * DELAY_S < added_s < 7 * DELAY_S
    assert max(far.seconds) < 2
    assert set(far.generations.values()) == set(running.sets.versions)
    assert running.metric("fullrank_shard_failures_total") == failures
    assert running.metric("fullrank_shard_replicas") == 4


def test_one_distant_node_is_asked_too_and_none_of_its_answers_counts_as_late(
    running: Running,
) -> None:
    failures = running.metric("fullrank_shard_failures_total")
    with (
        running.network.delayed(4, 2 * DELAY_S) as delay,
        searches(running.url, running.sets) as load,
    ):
        time.sleep(5)
    assert delay.frames > 100
    load.check()
    # Some waited for its answer, there and back, and were not hedged.
    assert 4 * DELAY_S < max(load.seconds) < 2
    assert running.metric("fullrank_shard_failures_total") == failures
    assert running.metric("fullrank_shard_breakers_open") == 0


def test_a_node_that_is_cut_off_fails_no_search_and_joins_again(running: Running) -> None:
    for number in (3, 4):
        with searches(running.url, running.sets) as load:
            with running.network.cut(number):
                time.sleep(CUT_S)
                assert running.metric("fullrank_shard_replicas") == 2
            running.wait_for_all()
        load.check()
        assert max(load.seconds) < 2


def test_searches_go_on_while_the_head_is_dead_and_swaps_afterwards(running: Running) -> None:
    second = running.sets.versions[1]
    with searches(running.url, running.sets) as load:
        running.nodes.kill(1)
        time.sleep(CUT_S)
        assert running.swap(second).returncode != 0
        running.nodes.start(1)
        wait_until(lambda: running.swap(second).returncode == 0, f"{second} can be activated", 120)
        wait_until_served(running.url, second)
        wait_until(lambda: second in load.generations.values(), f"{second} answers")
    load.check()


def test_replicas_that_are_started_after_the_head_was_are_asked_again(running: Running) -> None:
    with searches(running.url, running.sets) as load:
        for number in (3, 4):
            running.nodes.kill_replicas(number)
            wait_until(
                lambda: running.metric("fullrank_shard_replicas") == 2,
                "the router knows two replicas",
            )
            running.wait_for_all()
    load.check()
