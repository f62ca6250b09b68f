"""What serves in a collection: its active version, and the experiment that it has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experiment:
    """A version that is interleaved with the active one, since `started` (seconds since 1970) for `max_days`."""

    candidate: str
    share: float
    started: float
    max_days: float


@dataclass(frozen=True, slots=True)
class Active:
    """The active version of a collection; None: its newest loaded one serves."""

    version: str | None = None
    manifest_sha256: str | None = None
    previous: str | None = None
    experiment: Experiment | None = None


def name_of(version: str) -> str:
    """Return the bundle name of a version.

    Example:
        >>> name_of("my-shop-20260801t101500z-1f2e3d4c")
        'my-shop'
    """
    return version.rsplit("-", 2)[0]
