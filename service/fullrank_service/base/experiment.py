"""The experiment that a generation of models has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experiment:
    """A version that is interleaved with the active one, since `started` (seconds since 1970) for `max_days`."""

    candidate: str
    share: float
    started: float
    max_days: float
