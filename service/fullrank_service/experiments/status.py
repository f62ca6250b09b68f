"""What an experiment says so far: the votes of the log, and what they decide."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fullrank.events.log import EventLog
from fullrank.experiment.decisions import Tally, Verdict, follow
from fullrank.experiment.votes import votes_of
from fullrank_service.models.state import Experiment, read_state

_DAY_S = 86_400
_POINTS = 200


@dataclass(frozen=True)
class Status:
    """An experiment.

    Attributes:
        active, candidate: Versions.
        share: Of the searches.
        started: In seconds since 1970.
        max_days: After which it ends undecided.
        wins, losses: Votes for and against the candidate, until they decided.
        e_value: Evidence that one of the two is better.
        verdict: promote, stop or open; of the first moment at which the votes decided.
        expired: Whether it has expired.
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
        """Return the JSON form."""
        return asdict(self)


def read_status(root: Path, log: EventLog) -> Status | None:
    """Return the status of the experiment beside a folder of bundles, None without one.

    Raises:
        StateDamaged: The state cannot be read.
        SegmentError: The log is damaged.
    """
    state = read_state(root)
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
    """Keep at most 200 points, the last one among them."""
    step = -(-len(points) // _POINTS) or 1
    return points[::-1][::step][::-1]
