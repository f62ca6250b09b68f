"""The thread of a worker that follows the notes beside the bundles, and does all that is slow.

It prepares what is proposed, switches to what is committed, loads what should be held besides, and says in the worker's
report where it stands. Requests never wait for it. No failure ends it: it is logged, reported and tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from logging import getLogger
from pathlib import Path

from fullrank.bundle.catalog import Bundle, BundleInfo, read_manifest
from fullrank.errors import FullrankError
from service.models.loader import Loader, available, find
from service.models.memory import check_memory
from service.models.policy import Available, Holding, Step, besides, next_step
from service.models.serving import ALIAS, Shelf
from service.models.state import (
    PROPOSAL,
    STATE,
    ActiveState,
    Mark,
    Proposal,
    StateDamaged,
    mark,
    read_proposal,
    read_state,
)
from service.models.workers import Presence, choosing, reports

# How often a worker that waits for a commit looks, so that all switch within milliseconds.
_OPEN_S = 0.005
# Without anything to serve, seconds until the folder is looked through again; and after a failure.
_EMPTY_S = 0.5
_RETRY_S = 5.0
_log = getLogger(__name__)


class Follower:
    """Call ``come_up`` once, then ``start``."""

    def __init__(
        self,
        root: Path,
        shelf: Shelf,
        loader: Loader,
        presence: Presence,
        *,
        default_model: str | None = None,
        poll_s: float = 0.05,
    ) -> None:
        self._root = root
        self._shelf = shelf
        self._loader = loader
        self._presence = presence
        self._default_model = default_model
        self._poll_s = poll_s
        self._prepared: Bundle | None = None
        self._open = False  # a proposal stands that this worker has answered
        self._seen: Mark = None  # of the note that was followed last
        self._looked: Mark = None  # of the proposal that was looked at last
        self._retry_at = 0.0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def come_up(self, preload: bool) -> None:
        """Load what should serve. When this returns it is what the note says at that time."""
        self._presence.say()
        self._guarded(lambda: self._follow(preload=preload))
        while True:
            # Said before the note is looked at again: a swap either waits for this worker from now on, or was
            # committed before and is seen here.
            self._presence.say(started=True)
            if mark(self._root / STATE) == self._seen:
                return
            self._guarded(self._follow)

    def start(self) -> None:
        """Follow from now on."""
        self._thread.start()

    def nudge(self) -> None:
        """Look at once."""
        self._wake.set()

    def close(self) -> None:
        """Stop; what is being loaded is waited for, but not for ever."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self._presence.close()

    def _run(self) -> None:
        while True:
            self._wake.wait(_OPEN_S if self._open else self._poll_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            if self._open or self._due() or mark(self._root / PROPOSAL) != self._looked:
                self._guarded(self._look)
            if self._presence.unsaid:
                self._presence.say()  # what a full disk has kept from being said

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            # The worker must outlive whatever the disk does; the next round tries again.
            _log.exception("following the active version failed")
            self._shelf.failures[ALIAS] = "following the active version failed; see the log"
            self._retry_at = time.monotonic() + _RETRY_S

    def _due(self) -> bool:
        """Whether there is a note that was not followed yet."""
        return mark(self._root / STATE) != self._seen or time.monotonic() >= self._retry_at

    # -- a round ------------------------------------------------------------------------------

    def _look(self) -> None:
        self._looked = mark(self._root / PROPOSAL)
        # The proposal first: one that is gone was committed before the note is read, or never will be.
        proposal = read_proposal(self._root)
        if self._due():
            self._follow()
        if proposal is None:
            self._let_go()
            self._open = False
            self._presence.say(prepared=None)
        elif proposal.id != self._presence.report.proposal:
            self._prepare(proposal)

    def _prepare(self, proposal: Proposal) -> None:
        failure: str | None = None
        self._let_go()
        try:
            self._prepared = self._fresh(proposal)
        except FullrankError as error:
            failure = str(error)
        except Exception as error:
            _log.exception("preparing %s failed", proposal.version)
            failure = f"{type(error).__name__}: {error}"
        if failure is None:
            self._shelf.failures.pop(proposal.version, None)
        else:
            self._shelf.failures[proposal.version] = failure
            _log.error("cannot prepare %s: %s", proposal.version, failure)
        self._open = True
        self._presence.say(
            proposal=proposal.id,
            prepared=None if self._prepared is None else proposal.version,
            failure=failure,
        )

    def _let_go(self) -> None:
        """Forget what was prepared; where it serves by now it stays."""
        bundle, self._prepared = self._prepared, None
        if bundle is not None:
            self._shelf.release([bundle])

    def _fresh(self, proposal: Proposal) -> Bundle:
        """The proposed bundle as it is on disk now."""
        loaded = self._shelf.serving.models.get(proposal.version)
        if loaded is not None and self._loader.untouched(loaded):
            return loaded
        report = self._presence.report
        if proposal.host != report.host:
            # Of its own machine the coordinator has counted the workers already.
            lacking = [
                other
                for other in reports(self._root)
                if other.host == report.host and proposal.version not in other.loaded
            ]
            info = find(self._root, proposal.version)
            check_memory(read_manifest(info.path), max(1, len(lacking)))
        return self._loader.open(proposal.version, proposal.manifest_sha256)

    def _follow(self, *, preload: bool = False) -> None:
        """Do what the note asks for."""
        # Taken before the note is read: one replaced in between is then seen the next time.
        self._seen = mark(self._root / STATE)
        self._retry_at = float("inf")
        try:
            state = read_state(self._root)
        except StateDamaged as error:
            _log.error("%s", error)
            self._shelf.failures[ALIAS] = f"{error}"
            self._retry_at = time.monotonic() + _RETRY_S
            return
        self._shelf.besides = besides(state, self._shelf.max_loaded)
        step = self._step(state, preload)
        self._shelf.failures.pop(ALIAS, None)
        if step.activate is not None:
            self._activate(step, state)
        for version in step.load:
            try:
                self._shelf.hold(self._held(version))
            except FullrankError as error:
                self._shelf.failures[version] = str(error)
                self._retry_at = time.monotonic() + _RETRY_S
                _log.error("cannot load %s: %s", version, error)
        serving = self._shelf.serving
        if serving.active is None or ALIAS in self._shelf.failures:
            wait = _RETRY_S if ALIAS in self._shelf.failures else _EMPTY_S
            self._retry_at = time.monotonic() + wait
        self._presence.say(
            generation=serving.generation, version=serving.active, loaded=tuple(serving.models)
        )

    def _step(self, state: ActiveState | None, preload: bool) -> Step:
        serving = self._shelf.serving
        holding = Holding(serving.generation, serving.active, serving.models)
        if (
            state is not None
            and state.version is not None
            and not preload
            and set(self._shelf.besides) <= {*serving.models, state.version}
        ):
            return next_step(state, holding, [])  # a switch too needs no look through the folder

        def decide(elsewhere: list[str]) -> Step:
            return next_step(
                state,
                holding,
                [_named(info) for info in available(self._root)],
                self._default_model,
                preload=preload,
                room=self._shelf.max_loaded,
                elsewhere=elsewhere,
            )

        if serving.active is not None or (state is not None and state.version is not None):
            return decide([])
        with choosing(self._root):
            own = self._presence.report.id
            step = decide([r.version for r in reports(self._root) if r.version and r.id != own])
            if step.activate is not None:
                self._presence.say(version=step.activate)
        return step

    def _activate(self, step: Step, state: ActiveState | None) -> None:
        assert step.activate is not None
        noted = state if state is not None and state.version is not None else None
        try:
            bundle = self._held(step.activate, noted.manifest_sha256 if noted else None)
        except FullrankError as error:
            self._shelf.failures[step.activate] = str(error)
            self._shelf.failures[ALIAS] = f"{step.activate}: {error}"
            _log.error("cannot serve %s: %s", step.activate, error)
        else:
            self._shelf.switch(bundle, step.generation, noted.previous if noted else None)

    def _held(self, version: str, sha256: str | None = None) -> Bundle:
        """What was prepared, else what is loaded, else it is loaded now."""
        if self._prepared is not None and self._prepared.version == version:
            return self._prepared
        loaded = self._shelf.serving.models.get(version)
        return loaded if loaded is not None else self._loader.open(version, sha256)


def _named(info: BundleInfo) -> Available:
    return Available(info.name, info.version)
