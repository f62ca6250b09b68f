"""What was tried on one list, for the log; fullrank.events.records has the meaning of the fields."""

from __future__ import annotations

from typing import NamedTuple


class Tried(NamedTuple):
    """What was tried on one list; by default nothing."""

    candidate: str | None = None
    teams: str = ""
    pair: int | None = None
    swapped: bool = False
    inserted: int | None = None


NOTHING = Tried()
