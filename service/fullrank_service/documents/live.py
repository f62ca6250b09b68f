"""The live documents of one worker: writes go into the log, reads see views of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from typing import Annotated, Any, NamedTuple, Protocol

from fullrank.bundle import Bundle
from fullrank.errors import BundleError
from fullrank.filters.columns import aligned, columns_of
from fullrank.filters.query import matching, parse_filter
from fullrank.live import View
from fullrank_service.base import errors
from fullrank_service.base.background import Full, GroupCommit, Stopping
from fullrank_service.base.metrics import Metrics
from fullrank_service.documents.follow import BeyondTheEnd, Followed, Tail, ViewOf
from fullrank_service.documents.log import (
    Caps,
    Changed,
    Kept,
    KeyReused,
    Log,
    LogError,
    LogFull,
    Outcome,
    Submission,
    TooManyLive,
)
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.http.deps import part

# The documents that an app answers from: those of bundles and of a log (LiveDocuments), or of a fleet.


class Stored(NamedTuple):
    """The fields of a document, None without one, as of the last operation of the log that they contain."""

    fields: dict[str, Any] | None
    seq: int


class Documents(Protocol):
    """The documents of models; ``LiveDocuments`` describes the methods."""

    def start(self) -> None: ...
    async def close(self) -> None: ...
    async def view(self, bundle: Bundle, min_seq: int = 0) -> View: ...
    async def stored(
        self, view: View, id: str, only: Mapping[str, Any] | None = None
    ) -> Stored: ...
    def views(self, name: str | None = None) -> Sequence[Followed]: ...
    async def write(self, submission: Submission) -> Kept: ...
    async def head(self, collection: str) -> int: ...


def fields_of(view: View, id: str, only: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the stored fields of a document; None without one, or if it does not match a filter."""
    try:
        fields = view.fields(id)
    except KeyError:
        return None
    if only is None:
        return fields
    # As a document beside the others, whose fields a filter may name.
    [own, _] = aligned([columns_of([fields]), view.columns[0]])
    return fields if matching(parse_filter(only, "key.filter"), own)[0] else None


DocumentsDep = Annotated[Documents, part("documents")]


# Requests in one transaction. Writers of other workers wait for all of them.
_MAX_GROUP = 64
_log = getLogger(__name__)
# Writes wait while a view is this many operations behind, so that acknowledged writes are visible soon.
_MAX_BEHIND = 1024
# The longest such wait.
_CATCH_UP_S = 5.0


class LiveDocuments:
    """Live documents for routes and the registry. Failures are raised as problems of fullrank_service.base.errors."""

    def __init__(
        self,
        place: LogPlace,
        caps: Caps,
        metrics: Metrics,
        *,
        poll_s: float = 0.05,
        wait_s: float = 2.0,
        view_of: ViewOf = View.of,
    ) -> None:
        self._wait_s = wait_s
        self._metrics = metrics
        self._tail = Tail(
            place,
            poll_s=poll_s,
            changed=self._count,
            skipped=metrics.skipped_writes.inc,
            failed=metrics.background_failed,
            view_of=view_of,
        )
        self._place, self._caps = place, caps
        self._log: Log | None = None
        self._groups: GroupCommit[Submission, Outcome] = GroupCommit(
            "documents",
            self._commit,
            most=_MAX_GROUP,
            failed=metrics.background_failed,
            ended=self._close_log,
        )
        self._written: dict[str, int] = {}
        # Numbers of this worker's writes that are not visible yet, ascending, and when they were acknowledged.
        self._unseen: deque[tuple[int, float]] = deque()
        self._counting = threading.Lock()

    def prepare(self, bundle: Bundle) -> None:
        """Bring a bundle up to date with the log, then keep following. Raises BundleError."""
        self._tail.prepare(bundle)
        self._count()

    def start(self) -> None:
        self._tail.start()

    async def close(self) -> None:
        """Store waiting writes, then stop."""
        await asyncio.to_thread(self._groups.close)
        await asyncio.to_thread(self._tail.close)

    async def view(self, bundle: Bundle, min_seq: int = 0) -> View:
        """Return what a bundle serves, once it contains all operations up to min_seq."""
        try:
            return await self._tail.view(bundle, min_seq, self._wait_s)
        except TimeoutError:
            raise errors.NotYetVisible(f"Operation {min_seq} is not visible here yet.") from None
        except BundleError as error:
            raise errors.NotReady(f"{error}.") from None
        except BeyondTheEnd:
            reason = "is larger than the number of every acknowledged write"
            raise errors.Invalid(errors=[{"field": "min_seq", "reason": reason}]) from None

    async def stored(self, view: View, id: str, only: Mapping[str, Any] | None = None) -> Stored:
        """Return a document as a view has it; None if it does not match the filter `only`."""
        return Stored(fields_of(view, id, only), view.seq)

    def views(self, name: str | None = None) -> Sequence[Followed]:
        """Return the views of all loaded versions of a collection, or of all."""
        return self._tail.views(name)

    async def write(self, submission: Submission) -> Kept:
        """Store the writes of one request; they are synced when this returns. Raises Changed."""
        await self._catch_up(submission.collection)
        if self._tail.has_lost:
            raise errors.LogUnavailable
        seen = max((followed.seq for followed in self._tail.views()), default=0)
        kept = await self._submit(replace(submission, seen=seen))
        if not kept.again:
            self._written[submission.collection] = kept.seq
            self._unseen.append((kept.seq, time.monotonic()))
            self._count_visible()
            deleted = sum(write.fields is None for write in submission.writes)
            for kind, number in (("put", len(submission.writes) - deleted), ("delete", deleted)):
                if number:
                    self._metrics.writes.labels(kind).inc(number)
        return kept

    async def head(self, collection: str) -> int:
        """Return the number of the last acknowledged write of any worker; collections share the numbers of a log."""
        try:
            return await asyncio.to_thread(self._tail.head)
        except LogError:
            raise errors.LogUnavailable from None

    async def _submit(self, submission: Submission) -> Kept:
        """Store a submission; when this returns it survives a power cut. A cancelled call may have stored it."""
        try:
            outcome = await self._groups.submit(submission)
        except Full:
            raise errors.Overloaded("Too many writes are waiting; try again shortly.") from None
        except Stopping:
            raise errors.LogUnavailable from None
        match outcome:
            case Kept():
                return outcome
            case KeyReused():
                raise errors.IdempotencyKeyReused
            case TooManyLive():
                raise errors.TooManyDocuments(f"{outcome}.")
            case LogFull():
                raise errors.StorageFull
            case Changed():
                raise outcome
        raise errors.LogUnavailable

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
        self._tail.nudge()
        return outcomes

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def release(self, bundle: Bundle) -> None:
        self._tail.release(bundle)
        self._count()

    def _count(self) -> None:
        """Update the metrics; called on the thread that replaced a view."""
        followed = self._tail.views()
        views = [f.view for f in followed]
        self._metrics.live_documents.set(sum(part.n_live for view in views for part in view.added))
        # The newest version of a collection needs the fewest operations.
        fewest: dict[str, int] = {}
        for view in views:
            name, number = view.bundle.name, sum(part.n_live for part in view.added)
            fewest[name] = min(number, fewest.get(name, number))
        self._metrics.live_share.set(max(fewest.values(), default=0) / self._caps.documents)
        self._metrics.hidden_documents.set(
            sum(len(view.bundle.documents) - view.base.n_live for view in views)
        )
        self._metrics.log_position.set(min((f.seq for f in followed), default=0))
        self._metrics.backlog.set(max([0, *(self._tail.read_head - f.seq for f in followed)]))
        self._metrics.live_memory.set(max(self._tail.bytes.values(), default=0) / self._caps.bytes)
        self._count_visible()

    def _count_visible(self) -> None:
        seq = min((f.seq for f in self._tail.views()), default=0)
        with self._counting:
            while self._unseen and self._unseen[0][0] <= seq:
                self._metrics.visible_s.observe(time.monotonic() - self._unseen.popleft()[1])

    async def _catch_up(self, name: str) -> None:
        """Wait while the views are far behind the writes of this worker."""
        seq = self._written.get(name, 0) - _MAX_BEHIND
        behind = [f.view.bundle for f in self._tail.views(name) if f.seq < seq]
        try:
            for bundle in behind:
                await self._tail.wait(bundle, seq, _CATCH_UP_S)
        except (TimeoutError, BeyondTheEnd):
            raise errors.NotYetVisible(
                "Writes come faster than they can be made visible."
            ) from None
