"""Follow the log in one worker: each loaded model serves its bundle with the documents written since.

A thread reads new operations, at once after a write of this worker and otherwise every few hundredths of a second, and
replaces the view of each model by one assignment. A model that is being loaded is brought up to date before it serves.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from logging import getLogger
from typing import NamedTuple, Protocol

import orjson

from fullrank.bundle import Bundle
from fullrank.bundle.manifest import LogPosition
from fullrank.errors import BundleError, DocumentRefused
from fullrank.live import Merged, Operation, View
from fullrank_service.base.background import Failed, Repeater, trim_heap, uncounted
from fullrank_service.documents.ad import prepare_ads
from fullrank_service.documents.log import Log, LogError, Logged
from fullrank_service.documents.sqlitelog import LogPlace

# Merge segments in the background: a thread of its own, so that neither writes nor searches wait for a merge.
#
# The thread of the follower alone replaces views. It offers each new one here and adopts what has been merged of an
# earlier one. After a merge the thread rests as long as that took, a second at most. One merge runs at a time, so it
# needs as much memory again as the segments that it merges.


# Without a new view for this long, segments of all sizes are merged; where views never pause, once in so many times as
# long, so that writes in small steps leave two large segments, too.
_IDLE_S, _BUSY = 0.5, 20
_MAX_REST_S = 1.0


class Merger:
    """Merges the segments of the views of one worker."""

    def __init__(self, merged: Callable[[], None], failed: Failed = uncounted) -> None:
        """Call `merged`, on the merging thread, when there is something to adopt; nothing runs before ``start``."""
        self._done = merged
        # By the identity of the bundle.
        self._views: dict[int, View] = {}
        self._merged: dict[int, Merged] = {}
        self._offered = 0.0
        # When segments of all sizes were last due.
        self._tidied: dict[int, float] = {}
        self._lock = threading.Lock()
        self._thread = Repeater(
            "merge", self._merge_next, lambda: _IDLE_S if self._views else None,
            rest=1, max_rest_s=_MAX_REST_S, failure="segments of live documents could not be merged",
            failed=failed,
        )  # fmt: skip

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, after the merge that is running."""
        self._thread.close()

    def offer(self, view: View) -> None:
        """Merge segments of this view next, in place of those of an earlier view of the bundle."""
        with self._lock:
            self._views[id(view.bundle)] = view
            self._offered = time.monotonic()
            self._tidied.setdefault(id(view.bundle), self._offered)
        self._thread.nudge()

    def adopted(self, view: View) -> View:
        """Return the view with what was merged since."""
        with self._lock:
            merged = self._merged.pop(id(view.bundle), None)
        return view if merged is None else view.adopt(merged)

    def forget(self, key: int) -> None:
        """Drop what belongs to a bundle, given its identity."""
        with self._lock:
            self._views.pop(key, None)
            self._merged.pop(key, None)
            self._tidied.pop(key, None)

    def _merge_next(self) -> None:
        """Merge what is due first; a bundle whose last merge was not adopted yet waits."""
        now = time.monotonic()
        idle = now - self._offered >= _IDLE_S
        with self._lock:
            waiting = [(key, view) for key, view in self._views.items() if key not in self._merged]
        for key, view in waiting:
            is_every = idle or now - self._tidied.get(key, now) >= _BUSY * _IDLE_S
            segments = view.due(idle=is_every)
            if is_every:
                with self._lock:
                    self._tidied[key] = now
            if segments:
                if is_every:
                    trim_heap()  # of what encoding has left, before a large merge takes as much again
                merged = view.merge(segments)
                prepare_ads([merged.part])
                with self._lock:
                    if self._views.get(key) is None:
                        continue
                    self._merged[key] = merged
                self._done()
                return
            if idle:
                with self._lock:
                    if self._views.get(key) is view:
                        del self._views[key]


# Operations applied in one step. After each step the view is replaced, and requests get their turn.
CHUNK = 1024
# The same for a bundle that does not serve yet.
_REPLAYED = 4096
_COUNT_S = 1.0
_log = getLogger(__name__)

ViewOf = Callable[[Bundle, int], View]


class BeyondTheEnd(Exception):
    """A sequence number that was never assigned."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A view that contains all operations on its collection up to seq; the bundle itself contains those up to since."""

    view: View
    seq: int
    since: int


class _Waiter(NamedTuple):
    bundle: Bundle
    seq: int
    future: asyncio.Future[None]


def operations(found: Sequence[Logged]) -> list[Operation]:
    """Convert operations of the log to those of views."""
    return [
        Operation(o.seq, o.id, None if o.fields is None else orjson.loads(o.fields)) for o in found
    ]


def applied(view: View, found: Sequence[Logged], skipped: Callable[[], None]) -> View:
    """Return a view after operations of the log; a document that fails is logged, counted and left out."""
    try:
        return view.apply(operations(found))
    except DocumentRefused:
        raise
    except Exception as error:
        if len(found) > 1:
            middle = len(found) // 2
            return applied(applied(view, found[:middle], skipped), found[middle:], skipped)
        [failed] = found
        _log.error(
            "%s: operation %d of the log was skipped, without document %r: %s: %s",
            view.bundle.name, failed.seq, failed.id, type(error).__name__, error,
        )  # fmt: skip
        skipped()
        return view.apply([Operation(failed.seq, failed.id, None)])


def replayed(
    bundle: Bundle,
    log: Log | None,
    view_of: ViewOf = View.of,
    skipped: Callable[[], None] = lambda: None,
) -> Followed:
    """Return the view of a bundle with all later operations of the log. Raises BundleError."""
    if log is None:
        return Followed(view_of(bundle, 0), 0, 0)
    seq = since = start_of(bundle.manifest, log)
    view = view_of(bundle, seq)
    try:
        while True:
            found, upto = log.after(bundle.name, seq, _REPLAYED)
            view = applied(view, found, skipped)
            if upto == seq:
                return Followed(view, seq, since)
            seq = upto
    except DocumentRefused as error:
        raise BundleError(f"the log has live documents for {bundle.name}: {error}") from error


class Positioned(Protocol):
    """The manifest of a bundle, sharded or not."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def log_position(self) -> LogPosition | None: ...


def start_of(manifest: Positioned, log: Log) -> int:
    """Return the number after which a bundle lacks operations of this log. Raises BundleError if they are gone."""
    seq = contained(manifest, log)
    if seq > log.head():
        log.skip(manifest.name, seq)
    removed = log.removed(manifest.name)
    if seq < removed:
        raise BundleError(
            f"{manifest.version}: contains the live documents up to operation {seq}, but the log no longer has those"
            f" up to {removed}: another bundle of this name contains them"
        )
    return seq


def contained(manifest: Positioned, log: Log) -> int:
    """Return the number up to which a bundle contains this log; 0 if its position is in another log."""
    position = manifest.log_position
    return position.seq if position is not None and position.log == log.id else 0


class Tail:
    """The views of one worker. ``prepare``, ``release`` and ``views`` may be called from any thread."""

    def __init__(
        self,
        place: LogPlace,
        *,
        poll_s: float = 0.05,
        changed: Callable[[], None] = lambda: None,
        skipped: Callable[[], None] = lambda: None,
        failed: Failed = uncounted,
        view_of: ViewOf = View.of,
    ) -> None:
        """Follow a log.

        Args:
            poll_s: how often to look for writes of other workers.
            changed: called on the following thread when a view was replaced, or the log has grown.
            skipped: called for each operation that failed and was left out.
            view_of: makes the view of a bundle, up to a number that it contains.
        """
        self._place, self._view_of = place, view_of
        self._changed, self._skipped = changed, skipped
        # By the identity of the bundle: for a while, a version that was opened again is here twice.
        self._followed: dict[int, Followed] = {}
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: Log | None = None
        self._merger = Merger(self.nudge, failed)
        self.has_lost = False
        """Whether the log has lost operations that were read; nothing is followed any more then."""
        self.read_head = 0
        """The last operation of the log when it was read last."""
        self.bytes: dict[str, int] = {}
        """What counts against the cap of each collection; a second old at most."""
        self._counted = (-math.inf, 0)
        # Rest twice as long as the work took: requests get most of the time, and a stream of writes larger steps,
        # which take less time a document.
        self._thread = Repeater(
            "follow", self._round, poll_s, rest=2, max_rest_s=poll_s, ended=self._close_log,
            failure="live documents are not followed", failed=failed, expected=(LogError,),
        )  # fmt: skip

    # -- followed bundles ---------------------------------------------------------------------

    def prepare(self, bundle: Bundle) -> None:
        """Bring a bundle up to date with the log, then keep following. Raises BundleError."""
        followed = self._replayed(bundle)
        followed = replace(followed, view=followed.view.settled())
        prepare_ads(followed.view.parts)
        with self._lock:
            self._merger.forget(id(bundle))
            self._followed[id(bundle)] = followed

    def _replayed(self, bundle: Bundle) -> Followed:
        try:
            log = self._place.existing()
            try:
                return replayed(bundle, log, self._view_of, self._skipped)
            finally:
                if log is not None:
                    log.close()
        except LogError as error:
            raise BundleError(
                f"{bundle.version}: its live documents cannot be read: {error}"
            ) from error

    def release(self, bundle: Bundle) -> None:
        with self._lock:
            self._followed.pop(id(bundle), None)
            self._merger.forget(id(bundle))

    def views(self, name: str | None = None) -> list[Followed]:
        """Return the followed bundles of one collection, or of all."""
        followed = list(self._followed.values())
        return [f for f in followed if name in (None, f.view.bundle.name)]

    def head(self) -> int:
        """Return the number of the last write that any worker has acknowledged. Raises LogError."""
        log = self._place.existing()
        if log is None:
            return 0
        with closing(log):
            return log.head()

    # -- for requests -------------------------------------------------------------------------

    async def view(self, bundle: Bundle, min_seq: int = 0, timeout_s: float = 2.0) -> View:
        """Return the view of a bundle, once it contains all operations up to min_seq.

        Raises:
            TimeoutError: it does not within timeout_s.
            BeyondTheEnd: the number was never assigned.
        """
        followed = self._followed.get(id(bundle))
        if followed is not None and followed.seq < min_seq:
            await self.wait(bundle, min_seq, timeout_s)
            followed = self._followed.get(id(bundle))
        if followed is None:
            # A swap has released it after this request had read what serves.
            followed = await asyncio.to_thread(self._replayed, bundle)
            if followed.seq < min_seq:
                raise BeyondTheEnd
        return followed.view

    async def wait(self, bundle: Bundle, seq: int, timeout_s: float) -> None:
        """Wait until the view of a bundle contains all operations up to a number. Raises as ``view``."""
        self._loop = asyncio.get_running_loop()
        waiter = _Waiter(bundle, seq, self._loop.create_future())
        self._waiters.append(waiter)
        # After the append, because a view that was replaced earlier did not wake this request.
        self._settle()
        self._thread.nudge(is_urgent=True)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def nudge(self, *, is_urgent: bool = False) -> None:
        """Read the log at once; with is_urgent without the rest after a round."""
        self._thread.nudge(is_urgent=is_urgent)

    def start(self) -> None:
        self._thread.start()
        self._merger.start()

    def close(self) -> None:
        self._thread.close()
        self._merger.close()

    def _settle(self, beyond: Sequence[_Waiter] = ()) -> None:
        """Wake the requests whose operations are visible now; on the event loop."""
        for waiter in list(self._waiters):
            followed = self._followed.get(id(waiter.bundle))
            if waiter.future.done() or (followed is not None and followed.seq < waiter.seq):
                continue
            waiter.future.set_result(None)
        for waiter in beyond:
            if not waiter.future.done():
                waiter.future.set_exception(BeyondTheEnd())

    # -- following ----------------------------------------------------------------------------

    def _round(self) -> None:
        try:
            self._follow()
        except Exception:
            # Reads go on without new operations; the next round opens the log again.
            self._close_log()
            raise

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _follow(self) -> None:
        """Adopt finished merges, and bring every view up to date with the log."""
        for followed in list(self._followed.values()):
            self._replace(followed, replace(followed, view=self._merger.adopted(followed.view)))
        asked = list(self._waiters)
        if self._log is None:
            self._log = self._place.existing()
        if self._log is None:
            self._wake_waiters(asked)  # their numbers were never assigned
            return
        # Before the snapshot, because a bundle that is prepared meanwhile may be further than it.
        seen = max((followed.seq for followed in list(self._followed.values())), default=0)
        # One snapshot: an operation that is replaced between two steps would otherwise be in neither.
        with self._log.snapshot():
            head = self._log.head()
            self._check_none_lost(seen, head)
            if head > self.read_head:
                self.read_head = head
                self._changed()
            # A number beyond the head was never assigned, because clients learn it only after the commit.
            self._wake_waiters([waiter for waiter in asked if waiter.seq > head])
            behind = True
            while behind and not self._thread.is_closing:
                # One step of each view in turn, so that no view waits for the backlog of another.
                behind = False
                for followed in list(self._followed.values()):
                    if followed.seq < head and self._step(self._log, followed, head):
                        behind = True
            self._count(self._log)
        # Check the place last, so that acknowledged operations become visible even if it was removed.
        self._log.check_in_place()

    def _count(self, log: Log) -> None:
        """Count what waits for compaction, at most once a second."""
        now, (then, head) = time.monotonic(), self._counted
        if head == self.read_head or now - then < _COUNT_S:
            return
        self._counted = now, self.read_head
        since: dict[str, int] = {}
        for followed in self.views():
            name = followed.view.bundle.name
            since[name] = max(followed.since, since.get(name, 0))
        self.bytes = {name: log.count(name, after)[1] for name, after in since.items()}
        self._changed()

    def _check_none_lost(self, seen: int, head: int) -> None:
        """Raise LogError once the log has lost operations that were read: a standby without them has taken over.

        Their numbers will be given to other operations, which views that have read further would skip.
        """
        self.has_lost |= seen > head
        if self.has_lost:
            raise LogError(
                f"{self._place.name}: has lost operations that it had; restart the service"
            )

    def _step(self, log: Log, followed: Followed, head: int) -> bool:
        """Apply some operations towards head; return whether there may be more."""
        bundle = followed.view.bundle
        found, upto = log.after(bundle.name, max(followed.seq, followed.view.seq), CHUNK)
        try:
            view = applied(followed.view, found, self._skipped)
        except DocumentRefused as error:
            self._thread.log_failure(error)
            return False
        # Numbers may be missing because later operations have replaced these; a later step has those.
        is_complete = upto == head or upto == followed.seq + len(found)
        seq = upto if is_complete else followed.seq
        self._replace(followed, replace(followed, view=view, seq=seq))
        return True

    def _replace(self, old: Followed, new: Followed) -> None:
        """Serve a new view from now on, unless its bundle was prepared again or released meanwhile."""
        bundle = old.view.bundle
        prepare_ads(new.view.added)
        with self._lock:
            if (new.view is old.view and new.seq == old.seq) or self._followed.get(
                id(bundle)
            ) is not old:
                return
            self._followed[id(bundle)] = new
            self._merger.offer(new.view)
        self._changed()
        self._wake_waiters()

    def _wake_waiters(self, beyond: Sequence[_Waiter] = ()) -> None:
        if self._waiters and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, beyond)
