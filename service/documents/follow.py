"""The log, followed by one worker: what each loaded model serves with the documents written since.

A thread reads what is new (at once after a write of this worker, else every few hundredths of a second) and replaces
the view of each model by one assignment. A model that is being loaded is brought up to the log before it may serve.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

import orjson

from fullrank.bundle.catalog import Bundle
from fullrank.bundle.manifest import Manifest
from fullrank.errors import BundleError, DocumentRefused
from fullrank.live import Operation, View
from service.documents.log import Log, LogError, Logged

# Operations applied in one step: a view is replaced, and requests come in between, that often.
CHUNK = 256
# Operations applied in one step to a bundle that does not serve yet.
_REPLAYED = 4096
# The same trouble is not told again for so long.
_QUIET_S = 10.0
_log = getLogger(__name__)


class BeyondTheEnd(Exception):
    """A number that the log has not given yet."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A view; all operations on its collection up to seq are in it, and those up to since in the bundle itself."""

    view: View
    seq: int
    since: int


class _Waiter(NamedTuple):
    bundle: Bundle
    seq: int
    future: asyncio.Future[None]


def operations(found: Sequence[Logged]) -> list[Operation]:
    """What was read of the log, as views take it."""
    return [
        Operation(o.seq, o.id, None if o.fields is None else orjson.loads(o.fields)) for o in found
    ]


def replayed(bundle: Bundle, log: Log | None) -> Followed:
    """The view of a bundle with everything that the log holds beyond it.

    Raises BundleError where operations are gone that the bundle lacks, or its model takes none.
    """
    if log is None:
        return Followed(View.of(bundle), 0, 0)
    seq = since = contained(bundle.manifest, log)
    if seq > log.head():
        log.skip(bundle.name, seq)
    removed = log.removed(bundle.name)
    if seq < removed:
        raise BundleError(
            f"{bundle.version}: holds the live documents up to operation {seq}, but those up to {removed}"
            " are no longer in the log: another bundle of this name holds them"
        )
    view = View.of(bundle, seq)
    try:
        while True:
            found, upto = log.after(bundle.name, seq, _REPLAYED)
            view = view.apply(operations(found))
            if upto == seq:
                return Followed(view, seq, since)
            seq = upto
    except DocumentRefused as error:
        raise BundleError(f"the log holds live documents for {bundle.name}: {error}") from error


def contained(manifest: Manifest, log: Log) -> int:
    """Up to which number a bundle holds what this log says; what it holds of another log does not count."""
    position = manifest.log_position
    return position.seq if position is not None and position.log == log.id else 0


class Tail:
    """The views of one worker. ``prepare``, ``release`` and ``views`` may be called on any thread."""

    def __init__(
        self, path: Path, *, poll_s: float = 0.05, changed: Callable[[], None] = lambda: None
    ) -> None:
        """changed: called on the following thread whenever a view was replaced."""
        self._path = path
        self._poll_s = poll_s
        self._changed = changed
        # By the identity of the bundle: a version that is opened anew is there twice for a while.
        self._followed: dict[int, Followed] = {}
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: Log | None = None
        self._wake = threading.Event()
        self._closed = False
        self._told = -_QUIET_S
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    # -- which models -------------------------------------------------------------------------

    def prepare(self, bundle: Bundle) -> None:
        """Bring a bundle up to the log, and follow it from there. Raises BundleError."""
        followed = self._replayed(bundle)
        with self._lock:
            self._followed[id(bundle)] = followed

    def _replayed(self, bundle: Bundle) -> Followed:
        try:
            log = Log.existing(self._path)
            try:
                return replayed(bundle, log)
            finally:
                if log is not None:
                    log.close()
        except LogError as error:
            raise BundleError(
                f"{bundle.version}: its live documents cannot be read: {error}"
            ) from error

    def release(self, bundle: Bundle) -> None:
        """Stop following a bundle."""
        with self._lock:
            self._followed.pop(id(bundle), None)

    def views(self, name: str | None = None) -> list[Followed]:
        """What is followed of one collection, or of all."""
        followed = list(self._followed.values())
        return [f for f in followed if name in (None, f.view.bundle.name)]

    # -- for requests -------------------------------------------------------------------------

    async def view(self, bundle: Bundle, min_seq: int = 0, timeout_s: float = 2.0) -> View:
        """The view of a bundle; with min_seq one that holds all operations up to that number.

        Raises TimeoutError where that takes too long, BeyondTheEnd where the number was never given.
        """
        followed = self._followed.get(id(bundle))
        if followed is not None and followed.seq < min_seq:
            await self.wait(bundle, min_seq, timeout_s)
            followed = self._followed.get(id(bundle))
        if followed is None:
            # Let go of a moment ago, by a swap that this request did not see.
            followed = await asyncio.to_thread(self._replayed, bundle)
            if followed.seq < min_seq:
                raise BeyondTheEnd
        return followed.view

    async def wait(self, bundle: Bundle, seq: int, timeout_s: float) -> None:
        """Until the view of a bundle holds all operations up to a number. Raises as ``view``."""
        self._loop = asyncio.get_running_loop()
        waiter = _Waiter(bundle, seq, self._loop.create_future())
        self._waiters.append(waiter)
        # Asked only now: a view replaced before this line woke nobody.
        self._settle()
        self.nudge()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def nudge(self) -> None:
        """Read the log now."""
        self._wake.set()

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _settle(self, beyond: Sequence[_Waiter] = ()) -> None:
        """Wake who waits for what is there by now; on the event loop."""
        for waiter in list(self._waiters):
            followed = self._followed.get(id(waiter.bundle))
            if waiter.future.done() or (followed is not None and followed.seq < waiter.seq):
                continue
            waiter.future.set_result(None)
        for waiter in beyond:
            if not waiter.future.done():
                waiter.future.set_exception(BeyondTheEnd())

    # -- following ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._poll_s)
            self._wake.clear()
            began = time.perf_counter()
            try:
                self._follow()
            except Exception as error:
                self._trouble(error)
            # What comes in a stream is applied in larger steps, and requests have half of the time for themselves.
            if not self._waiters:
                time.sleep(min(time.perf_counter() - began, self._poll_s))
        if self._log is not None:
            self._log.close()

    def _follow(self) -> None:
        """Bring every view up to the log as it is now."""
        asked = list(self._waiters)
        if self._log is None:
            self._log = Log.existing(self._path)
        if self._log is None:
            self._tell(asked)  # their numbers were never given
            return
        # Of one moment: an operation that is replaced meanwhile would be in no step.
        with self._log.snapshot():
            head = self._log.head()
            # Their numbers were given before they came, or never.
            self._tell([waiter for waiter in asked if waiter.seq > head])
            behind = True
            while behind and not self._closed:
                # A step of each in turn, so that none waits for another's backlog.
                behind = False
                for followed in list(self._followed.values()):
                    if followed.seq < head and self._step(self._log, followed, head):
                        behind = True

    def _step(self, log: Log, followed: Followed, head: int) -> bool:
        """Some operations on towards head; whether there may be more."""
        bundle = followed.view.bundle
        found, upto = log.after(bundle.name, max(followed.seq, followed.view.seq), CHUNK)
        try:
            view = followed.view.apply(operations(found))
        except DocumentRefused as error:
            self._trouble(error)
            return False
        with self._lock:
            if self._followed.get(id(bundle)) is not followed:
                return True  # prepared anew, or let go of
            # Where numbers are missing there may be documents that were written again, which a later step has.
            whole = upto == head or upto == followed.seq + len(found)
            seq = upto if whole else followed.seq
            self._followed[id(bundle)] = replace(followed, view=view, seq=seq)
        self._changed()
        self._tell()
        return True

    def _tell(self, beyond: Sequence[_Waiter] = ()) -> None:
        if self._waiters and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, beyond)

    def _trouble(self, error: Exception) -> None:
        """Reads go on without what is new; the next round tries again."""
        if self._log is not None and not isinstance(error, DocumentRefused):
            self._log.close()
            self._log = None
        if time.monotonic() - self._told > _QUIET_S:
            self._told = time.monotonic()
            _log.error(
                "live documents are not followed: %s",
                error,
                exc_info=not isinstance(error, LogError),
            )
