"""Simulate a router and its shards: every request waits for the slowest shard.

``simulate`` has many clients, and cores of its own for each replica. Requests arrive as a Poisson process. Each shard
serves in order of arrival, and takes a time that is drawn from recorded ones. With two replicas the second is asked as
well once the first has taken longer than the 95th percentile of the recorded times, for at most a share of the
requests. ``one_client`` has one client, and all processes on one machine.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """What a fleet is asked.

    Attributes:
        shards: Asked by every request.
        cores: Of each replica.
        replicas: Of each shard.
        per_second: Requests.
        router_s: Processor time of the router for each shard, on one core.
        hedges: Share of the requests to a shard whose second replica may be asked as well.
        fan_out: Shards that one router asks, each router as many at the same time; None: one asks all.
    """

    shards: int
    cores: int
    replicas: int
    per_second: float
    router_s: float = 0.0
    hedges: float = 0.05
    fan_out: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the simulation found.

    Attributes:
        seconds: float64 (requests,), from the arrival to the answer of the last shard.
        busy: Share of the time in which a core of a shard works.
        hedged: Share of the requests to shards that a second replica was asked for as well.
    """

    seconds: Float64
    busy: float
    hedged: float

    def percentile(self, share: float) -> float:
        """Return a percentile of the times, in seconds; the first tenth of the requests fills the queues."""
        return float(np.percentile(self.seconds[len(self.seconds) // 10 :], 100 * share))


def simulate(service_s: Float64, load: Load, requests: int, seed: int) -> Outcome:
    """Simulate a fleet.

    Args:
        service_s: float64 (n,), recorded processor times of one shard for one request, in seconds.
        load: What it is asked.
        requests: How many are simulated.
        seed: Of arrivals and drawn times.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / load.per_second, requests))
    late_s = float(np.quantile(service_s, 0.95))
    slowest = np.zeros(requests)
    work = hedged = 0.0
    # A router sends to one shard after the other.
    for shard in range(load.shards):
        first = rng.choice(service_s, requests)
        second = rng.choice(service_s, requests)
        replicas = [[0.0] * load.cores for _ in range(load.replicas)]
        budget = 0.0
        place_of_shard = shard % (load.fan_out or load.shards)
        sent = arrivals + (place_of_shard + 1) * load.router_s
        for number, arrived in enumerate(sent.tolist()):
            budget += load.hedges
            place = number % load.replicas
            done = _serve(replicas[place], arrived, float(first[number]))
            work += float(first[number])
            if load.replicas > 1 and done - arrived > late_s and budget >= 1:
                budget -= 1
                hedged += 1
                other = replicas[(place + 1) % load.replicas]
                done = min(done, _serve(other, arrived + late_s, float(second[number])))
                work += float(second[number])
            slowest[number] = max(slowest[number], done - arrivals[number])
    cores = load.shards * load.replicas * load.cores
    calls = requests * load.shards
    return Outcome(slowest, work / (cores * float(arrivals[-1])), hedged / calls)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with all processes of a fleet, and no others.

    Attributes:
        cores: That all share.
        base_s: Processor time of the router for a request without shards.
        router_s: Of the router for each shard.
        call_s: Of a shard for receiving a call and sending its answer.
    """

    cores: int
    base_s: float
    router_s: float
    call_s: float


def one_client(
    service_s: Float64, shards: int, machine: Machine, requests: int, seed: int
) -> Float64:
    """Simulate one client that sends a request when the answer to the last one has come.

    Args:
        service_s: float64 (n,), recorded processor times of one shard for one request, in seconds.
        shards: Asked by every request.
        machine: Where all of them run.
        requests: How many are simulated.
        seed: Of drawn times.

    Returns:
        float64 (requests,), seconds of each request.
    """
    drawn = np.random.default_rng(seed).choice(service_s, (requests, shards)) + machine.call_s
    sent = [machine.base_s + (shard + 1) * machine.router_s for shard in range(shards)]
    taken = np.empty(requests)
    for number, times in enumerate(drawn.tolist()):
        # The router has a core until it has sent the last call.
        free_at = [0.0] * (machine.cores - 1) + [sent[-1]]
        heapq.heapify(free_at)
        taken[number] = max((_serve(free_at, at, s) for at, s in zip(sent, times, strict=True)))
    return taken


def _serve(free_at: list[float], arrived: float, seconds: float) -> float:
    """Give a request to the core that is free first, and return when it is done."""
    done = max(arrived, heapq.heappop(free_at)) + seconds
    heapq.heappush(free_at, done)
    return done
