"""The hot swap, in two phases, over all workers that share the folder of bundles.

    1. propose   proposed.json names the version. Every worker loads, verifies and warms it up while it goes on serving,
                 and reports that it is prepared, or why it cannot be.
    2. commit    When all workers are prepared, active.json is replaced, and from then on the new version serves: each
                 worker switches by one assignment when it sees the change, and a worker that starts loads it.

The coordinator keeps the state locked from before the proposal until all workers serve the new generation, so there is
one swap at a time. If anything fails before the commit, or the coordinator dies, nothing has changed. After the commit
no failure can undo it. The coordinator is the worker that got the HTTP request, or the command line, with or without
workers.
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

from fullrank.bundle import BundleInfo, read_manifest, verify_bundle
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank_service.base.experiment import Experiment, name_of
from fullrank_service.models.loader import check_memory, find, manifest_sha256
from fullrank_service.models.state import (
    ActiveState,
    Locked,
    Proposal,
    StateDamaged,
    activated,
    experimenting,
    loading,
    lock,
    propose,
    read_state,
    sweep,
    without_experiment,
    write_state,
)
from fullrank_service.models.workers import Report, converged, reports

TIMEOUT_S = 120.0
# Longest wait after the commit until every worker serves the new generation.
_SETTLE_S = 10.0
# Polling interval of the reports.
_POLL_S = 0.005
# After one worker has failed, the time that the others get to report too.
_GRACE_S = 1.0
_log = getLogger(__name__)


class SwapUnderWay(FullrankError):
    """Another swap is in progress; nothing was changed."""


class SwapRefused(BundleError):
    """The version cannot serve; the message says why. Nothing was changed."""


class SwapFailed(FullrankError):
    """The state could not be written; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """The result of a swap. If it is not converged, some workers are still switching."""

    generation: int
    version: str | None
    previous: str | None
    workers: int
    converged: bool


class Swap:
    """Coordinates swaps.

    Args:
        timeout_s: longest wait until every worker is prepared.
        stop: set when this process is about to end; a swap that is not committed is then withdrawn.
        nudge: called when the follower of this process should check the files.
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

    def activate(self, version: str, collection: str | None = None) -> Swapped:
        """Make a version the default. Raises BundleNotFound, SwapUnderWay, SwapRefused, SwapFailed: nothing changed.

        Args:
            collection: Bundle name for whose searches alone it becomes the default.
        """

        def change(state: ActiveState, sha256: str) -> ActiveState:
            before = state.version or _served(reports(self._root), collection)
            return activated(state, version, sha256, self._next_generation(state), before)

        return self.run(version, change, collection)

    def start_experiment(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Swapped:
        """Interleave a version with the active one; this ends an experiment with another. Raises as ``activate``."""

        def change(state: ActiveState, sha256: str) -> ActiveState:
            active = self._other(state, candidate, collection)
            noted = state.manifest_sha256 or manifest_sha256(find(self._root, active).path)
            experiment = Experiment(candidate, share, time.time(), max_days)
            return experimenting(state, active, noted, self._next_generation(state), experiment)

        return self.run(candidate, change, collection)

    def promote(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Swapped:
        """Make a candidate the default, and interleave the version before it from now on. Raises as ``activate``."""

        def change(state: ActiveState, sha256: str) -> ActiveState:
            before = self._other(state, candidate, collection)
            experiment = Experiment(before, share, time.time(), max_days)
            generation = self._next_generation(state)
            after = activated(state, candidate, sha256, generation, before)
            return replace(after, experiment=experiment)

        return self.run(candidate, change, collection)

    def _other(self, state: ActiveState, candidate: str, collection: str | None) -> str:
        active = state.version or _served(reports(self._root), collection)
        if active is None or active == candidate:
            raise SwapRefused(f"{candidate}: there is no other version to compare it with")
        return active

    def stop_experiment(self, collection: str | None = None) -> Swapped:
        """End the experiment; the active version stays. Without one, change nothing. Raises as ``start_experiment``."""

        def change(state: ActiveState, sha256: str) -> ActiveState:
            return without_experiment(state, self._next_generation(state))

        active = serving_version(self._root, collection)
        if active is None:
            raise BundleNotFound("No version is active.")
        return self.run(active, change, collection)

    def _next_generation(self, state: ActiveState) -> int:
        return 1 + max([state.generation, *(r.generation for r in reports(self._root))])

    def load(self, version: str) -> Swapped:
        """Load a version in every worker; the default stays. Raises as ``activate``."""

        def change(state: ActiveState, sha256: str) -> ActiveState:
            loaded = {own for report in reports(self._root) for own in report.loaded}
            return loading(state, version, loaded)

        return self.run(version, change)

    def run(
        self,
        version: str,
        change: Callable[[ActiveState, str], ActiveState],
        collection: str | None = None,
    ) -> Swapped:
        try:
            with lock(self._root):
                sweep(self._root)
                info = find(self._root, version)
                state = read_state(self._root) or ActiveState(0)
                sha256 = manifest_sha256(info.path)
                whole = state if collection is None else self._noted(state)
                if collection not in (None, info.name):
                    raise BundleNotFound(f"{version} is no version of the collection {collection}.")
                own = change(whole.of(collection), sha256)
                after = whole.within(collection, own)
                if after != state:
                    self._propose_and_commit(info, sha256, after)
                return self.wait_until_settled(after, version, own)
        except Locked:
            raise SwapUnderWay(
                "Another swap is in progress; nothing was changed. Try again when it has finished."
            ) from None
        except FileNotFoundError:
            raise BundleNotFound("The folder of the bundles does not exist.") from None
        except BundleNotFound:
            raise
        except (BundleError, StateDamaged) as error:
            raise SwapRefused(str(error)) from error
        except OSError as error:
            raise SwapFailed(
                f"The change could not be written ({error.strerror}); nothing was changed."
            ) from error

    def _noted(self, state: ActiveState) -> ActiveState:
        """Return a state that names the default version: what serves unnamed must not become another collection."""
        if state.version is not None:
            return state
        active = _served(reports(self._root))
        if active is None:
            raise SwapRefused("no version serves by default yet; activate one first")
        sha256 = manifest_sha256(find(self._root, active).path)
        return replace(state, version=active, manifest_sha256=sha256)

    def _propose_and_commit(self, info: BundleInfo, sha256: str, after: ActiveState) -> None:
        """Run both phases. Raises BundleError or OSError if nothing was changed."""
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
            if not self.wait_until_prepared(proposal):
                # No worker has verified it, and the next one that starts must be able to load it.
                verify_bundle(info.path)
            self._commit(after)
        finally:
            file.close()
        self._nudge()

    def wait_until_prepared(self, proposal: Proposal) -> int:
        """Wait until every worker is prepared; return their number. Raises SwapRefused with the reasons."""
        end = time.monotonic() + self._timeout_s
        while True:
            # A worker that is still starting will load whatever is committed by then.
            workers = [report for report in reports(self._root) if report.started]
            pending = [report for report in workers if report.proposal != proposal.id]
            failed = any(report.failure for report in workers if report not in pending)
            if failed:
                end = min(end, time.monotonic() + _GRACE_S)
            if not pending and not failed:
                return len(workers)
            if not pending or time.monotonic() >= end or self._stop.is_set():
                raise SwapRefused(_reasons(workers, proposal, self._stop.is_set()))
            self._stop.wait(_POLL_S)

    def _commit(self, after: ActiveState) -> None:
        """Replace the state: from here on the new version serves. Raises OSError if the old state is still there."""
        try:
            write_state(self._root, after)
        except OSError:
            # The failure may have come after the replacement; then workers follow the new state already.
            if read_state(self._root) != after:
                raise
            _log.exception("the state was written, but may not survive a power cut")

    def wait_until_settled(self, state: ActiveState, version: str, own: ActiveState) -> Swapped:
        """Wait until every worker follows the state and has loaded the version; own: the state of its collection."""
        end = time.monotonic() + _SETTLE_S
        while True:
            found = [report for report in reports(self._root) if report.started]
            # While no version was activated, each worker stays at the generation with which it started.
            done = all(version in report.loaded for report in found) and (
                state.version is None or converged(found, state.generation)
            )
            if done or time.monotonic() >= end or self._stop.is_set():
                return Swapped(own.generation, own.version, own.previous, len(found), done)
            self._stop.wait(_POLL_S)


def serving_version(root: Path, collection: str | None = None) -> str | None:
    """Return the activated version of a collection, else of the default one, else the one that running workers serve.

    Raises:
        StateDamaged: The state cannot be read.
    """
    state = read_state(root) or ActiveState(0)
    return state.of(collection).version or state.version or _served(reports(root))


def _served(found: list[Report], collection: str | None = None) -> str | None:
    """Return what workers serve by default, or in a collection that has no active version."""
    if collection is None:
        return next((report.version for report in found if report.version is not None), None)
    loaded = [version for report in found for version in report.loaded]
    return max((version for version in loaded if name_of(version) == collection), default=None)


def _reasons(workers: list[Report], proposal: Proposal, stopping: bool) -> str:
    """Return the reasons of all workers; each reason once, with the workers that gave it."""
    workers_of: dict[str, list[str]] = {}
    for worker in workers:
        if worker.proposal != proposal.id:
            reason = "the service is stopping" if stopping else "was not prepared in time"
        elif worker.failure is None:
            continue
        else:
            reason = worker.failure
        workers_of.setdefault(reason, []).append(
            f"{worker.id} ({worker.host}, process {worker.pid})"
        )
    if len(workers_of) == 1 and len(workers) == sum(map(len, workers_of.values())):
        [reason] = workers_of
        return f"{proposal.version}: {reason}"
    return f"{proposal.version}: " + "; ".join(
        f"worker{'s' * (len(names) > 1)} {', '.join(names)}: {reason}"
        for reason, names in workers_of.items()
    )
