"""The experiment that a generation of models has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experiment:
    """A version whose documents are interleaved with those of the active one, in a share of the searches.

    `started` is in seconds since 1970; `max_days` later the active version stays.
    """

    candidate: str
    share: float
    started: float
    max_days: float
