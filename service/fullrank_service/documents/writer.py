"""Requests of one worker → the log of live documents, several in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger

from fullrank_service.documents.idempotency import KeyReused
from fullrank_service.documents.log import Log, Outcome
from fullrank_service.documents.logerrors import LogError
from fullrank_service.documents.logplace import LogPlace
from fullrank_service.documents.submission import Caps, Kept, Submission
from fullrank_service.groups import GroupCommit, Stopping
from fullrank_service.repeating import Failed, uncounted

# Requests in one transaction. Writers of other workers wait for all of them.
_MAX_GROUP = 64
_log = getLogger(__name__)


class Writer:
    """Writes to the log in one worker. Call ``write`` on the event loop."""

    def __init__(
        self,
        place: LogPlace,
        caps: Caps,
        *,
        committed: Callable[[], None] = lambda: None,
        failed: Failed = uncounted,
    ) -> None:
        """Start the thread of the writer.

        Args:
            place: of the log.
            caps: how much may wait for compaction.
            committed: called on the writer's thread after each commit.
            failed: counts unexpected failures.
        """
        self._place, self._caps = place, caps
        self._committed = committed
        self._log: Log | None = None
        self._groups: GroupCommit[Submission, Outcome] = GroupCommit(
            "documents", self._commit, most=_MAX_GROUP, failed=failed, ended=self._close_log
        )

    async def write(self, submission: Submission) -> Kept:
        """Store a submission; when this returns it survives a power cut. A cancelled call may have stored it.

        Raises:
            LogError, KeyReused, Full: none of its writes was stored.
        """
        try:
            outcome = await self._groups.submit(submission)
        except Stopping:
            raise LogError("the service is stopping") from None
        if isinstance(outcome, LogError | KeyReused):
            raise outcome
        return outcome

    def close(self) -> None:
        """Store the waiting submissions, then stop."""
        self._groups.close()

    def _commit(self, group: Sequence[Submission]) -> Sequence[Outcome]:
        try:
            if self._log is None:
                self._log = self._place.open()
            outcomes = self._log.commit(group, self._caps)
        except Exception as error:
            _log.error("%d write requests failed: %s", len(group), error)
            if not isinstance(error, LogError):
                _log.exception("unexpected error in the writer")
                error = LogError(f"{type(error).__name__}")
            # After a failure a new connection is opened: the old one may cache pages that are not stored.
            self._close_log()
            return [error] * len(group)
        self._committed()
        return outcomes

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
