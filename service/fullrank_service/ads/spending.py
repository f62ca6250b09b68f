"""Follow the sums that a file has: what ads have spent on this machine."""

from __future__ import annotations

from collections.abc import Callable

from fullrank_service.ads.counts import Counts, CountsError
from fullrank_service.ads.ledger import Ledger
from fullrank_service.repeating import Failed, Repeater, uncounted

POLL_S = 0.1


class Spending(Ledger):
    """A ledger that a thread keeps equal to a file.

    Args:
        open_counts: Opens the file.
        poll_s: How often to look for changes of other workers.
        failed: Counts failures to follow the file.
    """

    def __init__(
        self,
        open_counts: Callable[[], Counts],
        poll_s: float = POLL_S,
        failed: Failed = uncounted,
    ) -> None:
        super().__init__()
        self._open, self._poll_s = open_counts, poll_s
        self._counts: Counts | None = None
        self._last_change = 0
        self._repeater = Repeater(
            "spending",
            self._follow,
            poll_s,
            failure="budgets are not followed",
            failed=failed,
            expected=(CountsError,),
            ended=self._end,
        )
        self._repeater.start()
        self._repeater.nudge()

    def close(self) -> None:
        """Stop following."""
        self._repeater.close()

    def _follow(self) -> None:
        """Read the changes since the last time. Raises CountsError."""
        if self._counts is None:
            self._counts = self._open()
        for change in self._counts.spent_after(self._last_change):
            self._last_change = max(self._last_change, change.change)
            self.note(change)

    def _end(self) -> None:
        if self._counts is not None:
            self._counts.close()
