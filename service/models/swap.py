"""The hot swap, over every worker that shares the folder of bundles, in two phases.

    1. propose   proposed.json names the version. Every worker loads, verifies and warms it beside what it serves, and
                 says in its report that it is prepared, or why it is not.
    2. commit    when all are prepared active.json is replaced. From then on the new version serves: each worker
                 switches by one assignment when it sees the note, and one that starts comes up on it.

The coordinator holds the lock from before the proposal until all workers serve the new generation, so one swap is under
way at a time. Before the commit any failure, and the death of the coordinator, leaves everything as it was; after it
nothing that dies can take it back. Called by a worker that was asked over HTTP, and by the command line, with workers
or without any.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from logging import getLogger
from pathlib import Path

from fullrank.bundle.catalog import BundleInfo, read_manifest, verify_bundle
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from service.models.loader import find, manifest_sha256
from service.models.memory import check_memory
from service.models.state import (
    ActiveState,
    Locked,
    Proposal,
    StateDamaged,
    lock,
    propose,
    read_state,
    sweep,
    write_state,
)
from service.models.workers import Report, converged, reports

TIMEOUT_S = 120.0
# Longest wait, after the commit, until every worker serves the new generation.
_SETTLE_S = 10.0
# How often the reports are looked at.
_LOOK_S = 0.005
# After one worker has failed the others get so long to say what they found.
_GRACE_S = 1.0
_log = getLogger(__name__)


class SwapUnderWay(FullrankError):
    """Another swap holds the lock; nothing was changed."""


class SwapRefused(BundleError):
    """The version cannot serve, and why; nothing was changed."""


class SwapFailed(FullrankError):
    """The note could not be written; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """What serves from now on.

    converged  every worker was seen to serve it; otherwise the slow ones follow
    """

    generation: int
    version: str | None
    previous: str | None
    workers: int
    converged: bool


class Swap:
    """How to coordinate.

    timeout_s  longest wait until every worker is prepared
    stop       set when this process is about to end: a swap that is not committed is withdrawn
    nudge      called when there is something new for a worker in this process
    """

    def __init__(
        self,
        root: Path,
        *,
        timeout_s: float = TIMEOUT_S,
        stop: threading.Event | None = None,
        nudge: Callable[[], None] = lambda: None,
    ) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._stop = stop if stop is not None else threading.Event()
        self._nudge = nudge

    def activate(self, version: str) -> Swapped:
        """Let a version serve as the default. Activating what is active changes nothing.

        Raises BundleNotFound, SwapUnderWay, SwapRefused, SwapFailed.
        """

        def note(state: ActiveState, sha256: str) -> ActiveState:
            if (state.version, state.manifest_sha256) == (version, sha256):
                return state
            before = state.version or _served(reports(self._root))
            return ActiveState(
                1 + max([state.generation, *(r.generation for r in reports(self._root))]),
                version,
                sha256,
                state.loaded,
                before if before != version else state.previous,
            )

        return self._run(version, note)

    def load(self, version: str) -> Swapped:
        """Let every worker hold a version beside what serves. Raises as ``activate``."""

        def note(state: ActiveState, sha256: str) -> ActiveState:
            # Versions that nobody holds any more would only pile up. The last one stays longest.
            held = {v for report in reports(self._root) for v in report.loaded}
            kept = tuple(v for v in state.loaded if v in held and v != version)
            return replace(state, loaded=(*kept, version))

        return self._run(version, note)

    def _run(self, version: str, note: Callable[[ActiveState, str], ActiveState]) -> Swapped:
        try:
            with lock(self._root):
                sweep(self._root)
                info = find(self._root, version)
                state = read_state(self._root) or ActiveState()
                sha256 = manifest_sha256(info.path)
                after = note(state, sha256)
                if after != state:
                    self._change(info, sha256, after)
                return self._settled(after, version)
        except Locked:
            raise SwapUnderWay("Another swap is under way; nothing was changed.") from None
        except FileNotFoundError:
            raise BundleNotFound("The folder of the bundles does not exist.") from None
        except BundleNotFound:
            raise
        except (BundleError, StateDamaged) as error:
            raise SwapRefused(str(error)) from error
        except OSError as error:
            raise SwapFailed(
                f"The change could not be written down ({error.strerror}); nothing was changed."
            ) from error

    def _change(self, info: BundleInfo, sha256: str, after: ActiveState) -> None:
        """Both phases. Raises BundleError, OSError; then nothing was changed."""
        here = socket.gethostname()
        lacking = [
            report
            for report in reports(self._root)
            if report.host == here and info.version not in report.loaded
        ]
        if lacking:
            check_memory(read_manifest(info.path), len(lacking))
        proposal = Proposal(secrets.token_hex(8), info.version, sha256, here)
        file = propose(self._root, proposal)
        try:
            self._nudge()
            if not self._prepared(proposal):
                # No worker has looked at it: whoever starts next must be able to.
                verify_bundle(info.path)
            self._commit(after)
        finally:
            file.close()
        self._nudge()

    def _prepared(self, proposal: Proposal) -> int:
        """Wait until every worker is prepared; how many there are. Raises SwapRefused with the reasons."""
        end = time.monotonic() + self._timeout_s
        while True:
            # Whoever is still starting comes up on whatever is noted by then.
            workers = [report for report in reports(self._root) if report.started]
            open_ = [report for report in workers if report.proposal != proposal.id]
            failed = any(report.failure for report in workers if report not in open_)
            if failed:
                end = min(end, time.monotonic() + _GRACE_S)
            if not open_ and not failed:
                return len(workers)
            if not open_ or time.monotonic() >= end or self._stop.is_set():
                raise SwapRefused(_reasons(workers, proposal, self._stop.is_set()))
            self._stop.wait(_LOOK_S)

    def _commit(self, after: ActiveState) -> None:
        """From here on the new note is the truth. Raises OSError while it is not."""
        try:
            write_state(self._root, after)
        except OSError:
            # The note may have been replaced before what failed; then workers follow it already.
            if read_state(self._root) != after:
                raise
            _log.exception("the note was written, but may not survive a power cut")

    def _settled(self, state: ActiveState, version: str) -> Swapped:
        """Wait until every worker follows the note, and holds the version."""
        end = time.monotonic() + _SETTLE_S
        while True:
            found = [report for report in reports(self._root) if report.started]
            # Without a noted version each worker stays at the generation that it came up with.
            done = all(version in report.loaded for report in found) and (
                state.version is None or converged(found, state.generation)
            )
            if done or time.monotonic() >= end or self._stop.is_set():
                return Swapped(state.generation, state.version, state.previous, len(found), done)
            self._stop.wait(_LOOK_S)


def serving_version(root: Path) -> str | None:
    """The version that is noted, else the one that running workers serve. Raises StateDamaged."""
    state = read_state(root)
    return (state.version if state is not None else None) or _served(reports(root))


def _served(found: list[Report]) -> str | None:
    """What workers serve while nothing is noted."""
    return next((report.version for report in found if report.version is not None), None)


def _reasons(workers: list[Report], proposal: Proposal, stopping: bool) -> str:
    """Equal reasons are told once, with the workers that gave them."""
    told: dict[str, list[str]] = {}
    for worker in workers:
        if worker.proposal != proposal.id:
            reason = "the service is stopping" if stopping else "was not prepared in time"
        elif worker.failure is None:
            continue
        else:
            reason = worker.failure
        told.setdefault(reason, []).append(f"{worker.id} ({worker.host}, process {worker.pid})")
    if len(told) == 1 and len(workers) == sum(map(len, told.values())):
        [reason] = told
        return f"{proposal.version}: {reason}"
    return f"{proposal.version}: " + "; ".join(
        f"worker{'s' * (len(names) > 1)} {', '.join(names)}: {reason}"
        for reason, names in told.items()
    )
