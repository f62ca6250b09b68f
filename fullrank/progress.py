"""How far long work is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], object]
"""(part, done, total): so much of a part is done; 0 of 0 where its size is unknown."""


def silent(part: str, done: int, total: int) -> None:
    """Nobody looks."""
