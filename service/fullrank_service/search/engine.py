"""What ranks the documents of a view: this process (local.py), or others that it asks."""

from __future__ import annotations

from typing import Protocol

from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.telemetry.stages import Stages


class Engine(Protocol):
    """Ranks documents."""

    async def rank(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Ranked]:
        """Rank the documents of a view for a text. If the caller is cancelled, work that waits never starts.

        Args:
            view: What is searched.
            request: What to rank and to return.
            cached: The encoded text of the request; None: encode it.
            stages: The stopwatch.

        Returns:
            The encoded text, and the answer.

        Raises:
            FilterError: A field of the request does not fit the stored fields.
        """

    async def close(self) -> None:
        """Wait for running searches, cancel waiting ones."""
