"""What an experiment says so far: the votes of the log, and what they decide."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.events.decisions import Tally, Verdict, candidate_of, follow, read_decisions
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.events.votes import votes_of
from fullrank_service.base.errors import EventsUnavailable
from fullrank_service.base.experiment import Experiment
from fullrank_service.models.state import read_state

_DAY_S = 86_400
_POINTS = 200


@dataclass(frozen=True)
class Status:
    """An experiment.

    Attributes:
        started: In seconds since 1970.
        max_days: After which it ends undecided.
        wins, losses: Votes for and against the candidate, until they decided.
        e_value: Evidence that one of the two is better.
        verdict: At the first moment when the votes were decisive.
        e_values: (seconds since 1970, e-value) over time, at most 200 points.
    """

    active: str
    candidate: str
    share: float
    started: float
    max_days: float
    wins: int
    losses: int
    e_value: float
    verdict: Verdict
    expired: bool
    e_values: Sequence[tuple[float, float]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_status(root: Path, log: EventLog, collection: str | None = None) -> Status | None:
    """Return the status of the experiment of a collection; None without one. Raises FullrankError.

    Args:
        root: Folder of bundles.
        collection: Bundle name; None: what serves by default.
    """
    state = read_state(root)
    state = None if state is None else state.of(collection)
    if state is None or state.experiment is None or state.version is None:
        return None
    return status_of(state.version, state.experiment, log, time.time())


def status_of(active: str, experiment: Experiment, log: EventLog, now: float) -> Status:
    """Count the votes of the days that are over, and of all days once the experiment has expired."""
    since = experiment.started
    expired = now > since + experiment.max_days * _DAY_S
    until = math.inf if expired else now // _DAY_S * _DAY_S
    votes = votes_of(
        log.lists(since), log.events(since), active, experiment.candidate, since, until
    )
    tallies = list(follow(vote.wins for vote in votes))
    last = tallies[-1] if tallies else Tally()
    e_values = [(vote.at, tally.e_value) for vote, tally in zip(votes, tallies, strict=False)]
    return Status(
        active,
        experiment.candidate,
        experiment.share,
        since,
        experiment.max_days,
        *last,
        expired,
        _thinned(e_values),
    )


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    step = -(-len(points) // _POINTS) or 1
    return points[::-1][::step][::-1]


_FRESH_S = 30.0
_SHOWN = 50
_NUMBERS = ("active", "candidate", "wins", "losses", "e_value")
_log = getLogger(__name__)


class Reports:
    """Counts votes at most once in 30 seconds, and again once somebody was erased."""

    def __init__(self, root: Path, events: Path) -> None:
        self._root, self._events = root, EventLog(events, pauses=True)
        # One request at a time reads the log: not on the threads of writes and reads.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="votes")
        # By active version: what was counted, and when.
        self._found: dict[str, tuple[float, Experiment, Erasures, dict[str, Any]]] = {}

    async def votes(self, active: str, experiment: Experiment) -> dict[str, Any]:
        """Return what the votes of an experiment say. Raises EventsUnavailable."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._reading, self._votes, active, experiment)
        except (OSError, FullrankError) as error:
            _log.error("no votes: %s", error)
            raise EventsUnavailable from None

    def _votes(self, active: str, experiment: Experiment) -> dict[str, Any]:
        now, erased = time.monotonic(), erasures(self._events.folder)
        at, *key, votes = self._found.get(active, (-_FRESH_S, experiment, erased, {}))
        if key != [experiment, erased] or now - at >= _FRESH_S or not votes:
            found = status_of(active, experiment, self._events, time.time()).as_dict()
            wanted = ("wins", "losses", "e_value", "verdict", "expired", "e_values")
            votes = {name: found[name] for name in wanted}
            self._found[active] = now, experiment, erased, votes
        return votes

    async def decisions(self, collection: str | None = None) -> list[dict[str, Any]]:
        """Return what the loop decided, for a collection or all, the newest first, at most 50.

        Raises:
            EventsUnavailable: The decisions cannot be read.
        """
        try:
            found = await asyncio.to_thread(read_decisions, self._root)
        except FullrankError as error:
            _log.error("no decisions: %s", error)
            raise EventsUnavailable from None
        found = [made for made in found if collection in (None, made["name"])]
        return [_described(made) for made in found[: -_SHOWN - 1 : -1]]


def _described(made: dict[str, Any]) -> dict[str, Any]:
    report = made.get("report") or {}
    described = {name: made[name] for name in ("at", "name", "did")}
    described |= {name: made.get(name) for name in _NUMBERS}
    if "retrained" in made:
        described |= {"active": made["retrained"], "candidate": candidate_of(made)}
    gates = report.get("gates")
    kept = ("name", "passed", "reason")
    started = made.get("started")
    if started is not None:
        started = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    described["started"] = started
    described["e_values"] = made.get("e_values")
    described["gates"] = gates and [{name: gate[name] for name in kept} for gate in gates]
    return described
