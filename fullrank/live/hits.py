"""The answer of a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fullrank.encoding import Float32
from fullrank.live.part import Part


class LiveHit(NamedTuple):
    """One document of an answer: its part and row, and its score = dense + lexical + bias + boost.

    Attributes:
        boost: What the request adds to the score.
        features: float32 (K,), what the second stage ordered it by; None if it did not.
        keys: What a request sorts it by, the smallest first; None: its score.
    """

    part: Part
    row: int
    id: str
    score: float
    dense: float
    lexical: float
    bias: float
    boost: float = 0.0
    features: Float32 | None = None
    keys: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """An answer.

    Attributes:
        hits: Best first, ties by id.
        certified: Whether the hits are provably the top of the full ranking, before a second stage reordered it.
        total: Number of documents that match.
        is_total: Whether these are all that match; otherwise they are at least so many.
        reordered: Number of the first documents that a second stage reordered.
    """

    hits: list[LiveHit]
    certified: bool
    total: int
    is_total: bool = True
    reordered: int = 0
