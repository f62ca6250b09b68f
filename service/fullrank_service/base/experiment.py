"""The experiment that a generation of models has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experiment:
    """A version whose documents are interleaved with those of the active one.

    candidate  its version
    share      of the searches
    started    in seconds since 1970
    max_days   after which the active version stays
    """

    candidate: str
    share: float
    started: float
    max_days: float
