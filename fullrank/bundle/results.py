"""The answer of a bundle to a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.models.clicks import ClickShare
from fullrank.rerank.stage import SecondScore
from fullrank.scoring import WordScore


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of a search result: score = dense + lexical + bias.

    Attributes:
        fields: The stored fields.
        words: With explain=True, the words of the query that contributed most.
        clicks: With explain=True, what people chose before; None if the model counts no clicks.
        second_stage: With explain=True, the score that the hit was reordered by; None if it was not.
    """

    id: str
    score: float
    dense: float
    lexical: float
    bias: float
    fields: dict[str, Any]
    words: list[WordScore] | None = None
    second_stage: SecondScore | None = None
    clicks: ClickShare | None = None


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """Hits, best first, ties by id.

    Attributes:
        certified: The hits are proven to be the top of the full ranking, before a second stage reordered it.
        total: How many documents match.
        is_total: Whether these are all that match; otherwise they are at least so many.
        reordered: How many of the first documents a second stage reordered; their scores do not descend.
    """

    hits: list[Hit]
    certified: bool
    total: int
    is_total: bool = True
    reordered: int = 0

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.hits[place]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)
