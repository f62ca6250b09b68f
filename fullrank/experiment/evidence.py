"""When votes decide between two models: an e-value that may be looked at after every vote.

Under the hypothesis that each vote is a fair coin, the expected value of

    e(w, l) = ∫₀¹ θ^w (1 − θ)^l dθ / ½^(w + l) = B(w + 1, l + 1) 2^(w + l)

is 1 at any time, so by Ville's inequality it ever reaches 20 with a probability of at most 1/20, however often somebody
looks and whenever the test ends. (P. Grünwald, R. de Heide, W. Koolen: Safe testing, 2020.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import exp, inf, lgamma, log
from typing import NamedTuple

LEVEL = 20.0
SHARE, MAX_DAYS = 0.2, 14.0
"""Defaults: of the searches that an experiment interleaves, and the days after which it ends undecided."""


class Verdict(StrEnum):
    """What the votes say."""

    PROMOTE = "promote"
    STOP = "stop"
    OPEN = "open"


def e_value(wins: float, losses: float) -> float:
    """Return the evidence that two models are not equally good.

    Args:
        wins, losses: Votes for the candidate and against it.
    """
    logarithm = (
        lgamma(wins + 1) + lgamma(losses + 1) - lgamma(wins + losses + 2) + (wins + losses) * log(2)
    )
    return exp(logarithm) if logarithm < 700 else inf


class Tally(NamedTuple):
    """The votes so far.

    Attributes:
        wins, losses: For the candidate and against it.
        e_value: Their evidence.
        verdict: What it decides.
    """

    wins: int = 0
    losses: int = 0
    e_value: float = 1.0
    verdict: Verdict = Verdict.OPEN


def follow(votes: Iterable[bool]) -> Iterator[Tally]:
    """Yield the tally after each vote, up to the first that decides.

    Args:
        votes: In the order in which they were cast; True for the candidate.
    """
    wins = losses = 0
    for is_win in votes:
        wins, losses = wins + is_win, losses + (not is_win)
        tally = tally_of(wins, losses)
        yield tally
        if tally.verdict is not Verdict.OPEN:
            return


def tally_of(wins: int, losses: int) -> Tally:
    """Promote the candidate or stop the experiment once the evidence reaches `LEVEL`."""
    found = e_value(wins, losses)
    if found < LEVEL:
        return Tally(wins, losses, found, Verdict.OPEN)
    return Tally(wins, losses, found, Verdict.PROMOTE if wins > losses else Verdict.STOP)
