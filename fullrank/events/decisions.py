"""When votes decide between two models, and what `fullrank loop` decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from math import exp, inf, lgamma, log
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file

# When votes decide between two models: an e-value that may be looked at after every vote.
#
# Under the hypothesis that each vote is a fair coin, the expected value of
#
#     e(w, l) = ∫₀¹ θ^w (1 − θ)^l dθ / ½^(w + l) = B(w + 1, l + 1) 2^(w + l)
#
# is 1 at any time, so by Ville's inequality it ever reaches 20 with a probability of at most 1/20, however often
# somebody looks and whenever the test ends. (P. Grünwald, R. de Heide, W. Koolen: Safe testing, 2020.)

LEVEL = 20.0
SHARE, MAX_DAYS = 0.2, 14.0
"""Defaults: of the searches that an experiment interleaves, and the days after which it ends undecided."""


class Verdict(StrEnum):
    """What the votes say."""

    PROMOTE = "promote"
    STOP = "stop"
    OPEN = "open"


def e_value(wins: float, losses: float) -> float:
    """Return the evidence that two models are not equally good."""
    logarithm = (
        lgamma(wins + 1) + lgamma(losses + 1) - lgamma(wins + losses + 2) + (wins + losses) * log(2)
    )
    return exp(logarithm) if logarithm < 700 else inf


class Tally(NamedTuple):
    """The votes so far."""

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


# What `fullrank loop` decided: loop.json in the folder of bundles.
#
# A bundle never changes, so its card cannot take what is decided about it later; `fullrank bundles show` prints both.

DECISIONS = "loop.json"
LOOP_LOCK = ".loop.lock"
"""Its time of modification is when `fullrank loop` last ended without a failure."""
_KEPT = 1000


def read_decisions(root: Path) -> list[dict[str, Any]]:
    """Return what the loop did, the oldest first. Raises FullrankError if the file is damaged."""
    path = root / DECISIONS
    try:
        found: list[dict[str, Any]] = orjson.loads(path.read_bytes())
        if not all({"at", "name", "did"} <= made.keys() for made in found):
            raise ValueError("an entry lacks a field")
        return found
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FullrankError(f"{path}: {type(error).__name__}: {error}") from error


def write_decisions(root: Path, decisions: Sequence[dict[str, Any]]) -> None:
    """Replace the file by the newest 1,000."""
    replace_file(root / DECISIONS, orjson.dumps(decisions[-_KEPT:]).decode() + "\n")


def candidate_of(made: dict[str, Any]) -> str | None:
    """Return the version that a decision is about: the one on trial, or the one that a training published."""
    found: str | None = made.get("candidate") or (made.get("report") or {}).get("published")
    return found


def decisions_about(root: Path, version: str) -> list[dict[str, Any]]:
    """Return the decisions about a version, as candidate or as what served, the oldest first.

    Raises:
        FullrankError: The file is damaged.
    """
    return [
        made
        for made in read_decisions(root)
        if version in (candidate_of(made), made.get("active"), made.get("retrained"))
    ]


def one_line(made: dict[str, Any]) -> str:
    """Return a decision as ``promoted: shop-2 against shop-1, 31 votes to 9, e-value 28.4``; failed gates follow."""
    candidate, active = candidate_of(made), made.get("active") or made.get("retrained")
    line: str = made["did"] + (f": {candidate}" if candidate else "")
    line += f" against {active}" if candidate and active else ""
    line += f", {made['wins']} votes to {made['losses']}" if "wins" in made else ""
    line += f", e-value {made['e_value']:.3g}" if "e_value" in made else ""
    gates = (made.get("report") or {}).get("gates") or ()
    failed = [f"{gate['name']}: {gate['reason']}" for gate in gates if not gate["passed"]]
    return line + (f"; failed gates: {'; '.join(failed)}" if failed else "")


def moment(at: float) -> str:
    """Return seconds since 1970 as a date and a time of UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
