"""Follow the state files next to the bundles, in a thread that does all slow work of a worker.

It prepares a proposed version, switches to a committed one, loads further versions, and publishes its progress in the
worker's report. Requests never wait for it. No failure ends it: it logs and reports the failure, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from types import MappingProxyType

from fullrank.bundle import Bundle, BundleInfo, read_manifest
from fullrank.errors import FullrankError
from fullrank.storage.files import FileFingerprint, fingerprint
from fullrank_service.base.background import Failed, Repeater, uncounted
from fullrank_service.base.experiment import Active, Experiment
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.deps import ALIAS, Serving
from fullrank_service.models.loader import Loader, available, check_memory, find
from fullrank_service.models.policy import Available, Holding, Step, next_step, pinned, to_drop
from fullrank_service.models.state import (
    PROPOSAL,
    STATE,
    ActiveState,
    Proposal,
    StateDamaged,
    read_proposal,
    read_state,
)
from fullrank_service.models.workers import Presence, choosing, reports

_log = getLogger(__name__)


class LoadedModels:
    """The current Serving, replaced by one thread and read by all.

    max_loaded  models kept loaded; the active and the previous one stay even beyond it
    failures    why a version was refused, and under ALIAS why the activated version does not serve
    release     called with a bundle that was dropped, or was prepared and will not serve
    """

    def __init__(
        self, metrics: Metrics, max_loaded: int = 8, release: Callable[[Bundle], None] | None = None
    ) -> None:
        self.serving = Serving()
        self.failures: dict[str, str] = {}
        self._metrics = metrics
        self.max_loaded = max_loaded
        self.pinned: tuple[str, ...] = ()
        self._release = release

    def add(self, bundle: Bundle) -> None:
        """Add a model; the active one stays active."""
        self.failures.pop(bundle.version, None)
        if self.serving.models.get(bundle.version) is not bundle:
            self._publish(replace(self.serving, models=self._with(bundle)))
            _log.info("loaded %s", bundle.version)

    def switch(
        self,
        bundle: Bundle,
        generation: int,
        previous: str | None,
        experiment: Experiment | None = None,
        collections: Mapping[str, Active] = MappingProxyType({}),
    ) -> None:
        """Make a model the default; candidates of experiments, and what other collections serve, must be loaded."""
        self.failures.pop(bundle.version, None)
        self.failures.pop(ALIAS, None)
        models = self._with(bundle)
        self._publish(
            Serving(generation, bundle.version, previous, models, experiment, collections)
        )
        self._metrics.generation.set(generation)
        self._metrics.documents.set(bundle.n_documents)
        self._metrics.bundle_bytes.set(bundle.manifest.total_bytes)
        _log.info("generation %d serves %s", generation, bundle.version)

    def _with(self, bundle: Bundle) -> Mapping[str, Bundle]:
        return {**self.serving.models, bundle.version: bundle}

    def _publish(self, serving: Serving) -> None:
        models = dict(serving.models)
        newest = next(reversed(models), None)
        # Also what serves until the switch to a state that no longer names it.
        others = serving.collections.values()
        tried = [serving.experiment, *(own.experiment for own in others)]
        keep = {serving.active, serving.previous, newest, *self.pinned}
        keep |= {own.version for own in others} | {
            one.candidate for one in tried if one is not None
        }
        dropped = [models.pop(version) for version in to_drop(list(models), keep, self.max_loaded)]
        dropped += [
            old
            for version, old in self.serving.models.items()
            if version in models and models[version] is not old
        ]
        # The switch. Requests that have read the old reference finish with it.
        self.serving = replace(serving, models=MappingProxyType(models))
        self._metrics.models_loaded.set(len(models))
        self.release(dropped)

    def release(self, bundles: Iterable[Bundle]) -> None:
        """Release bundles that are no longer needed, except those that are loaded."""
        for bundle in bundles:
            if self._release is not None and self.serving.models.get(bundle.version) is not bundle:
                self._release(bundle)


# Polling interval while a proposal is open, so that all workers switch within milliseconds.
_OPEN_S = 0.005
# Pauses before the folder is searched again while there is nothing to serve, and after a failure.
_EMPTY_S = 0.5
_RETRY_S = 5.0


class Follower:
    """Call ``load_initial`` once, then ``start``."""

    def __init__(
        self,
        root: Path,
        models: LoadedModels,
        loader: Loader,
        presence: Presence,
        *,
        default_model: str | None = None,
        poll_s: float = 0.05,
        failed: Failed = uncounted,
    ) -> None:
        self._root = root
        self._models = models
        self._loader = loader
        self._presence = presence
        self._default_model = default_model
        self._prepared: Bundle | None = None
        self._is_open = False  # this worker has answered a proposal that is still open
        self._followed: FileFingerprint = None  # of the state that was followed last
        self._checked: FileFingerprint = None  # of the proposal that was read last
        self._retry_at = 0.0
        self._thread = Repeater(
            "follower",
            self._round,
            lambda: _OPEN_S if self._is_open else poll_s,
            failure="following the active version failed",
            failed=failed,
        )

    def load_initial(self, preload: bool) -> None:
        """Load until the loaded version equals the committed state."""
        self._presence.publish()
        self._guarded(lambda: self.follow(preload=preload))
        while True:
            # Published before the state is read again: a swap either waits for this worker from now on, or was
            # committed before and is found here.
            self._presence.publish(started=True)
            if fingerprint(self._root / STATE) == self._followed:
                return
            self._guarded(self.follow)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """Check the files at once."""
        self._thread.nudge()

    def close(self) -> None:
        """Stop; wait up to 5 s for a bundle that is being loaded."""
        self._thread.close()
        self._presence.close()

    def _round(self) -> None:
        if self._is_open or self._due() or fingerprint(self._root / PROPOSAL) != self._checked:
            self._guarded(self._check)
        if self._presence.dirty:
            self._presence.publish()  # for example after a full disk

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            # A worker must survive every failure of the disk; the next round tries again.
            self._thread.log_failure(error)
            self._models.failures[ALIAS] = "following the active version failed; see the log"
            self._retry_at = time.monotonic() + _RETRY_S

    def _due(self) -> bool:
        return (
            fingerprint(self._root / STATE) != self._followed or time.monotonic() >= self._retry_at
        )

    def _check(self) -> None:
        self._checked = fingerprint(self._root / PROPOSAL)
        # Read the proposal before the state: if it is missing, the state already has it, or never will.
        proposal = read_proposal(self._root)
        if self._due():
            self.follow()
        if proposal is None:
            self._discard_prepared()
            self._is_open = False
            self._presence.publish(prepared=None)
        elif proposal.id != self._presence.report.proposal:
            self.prepare(proposal)

    def prepare(self, proposal: Proposal) -> None:
        """Load a proposed version, and report that it is prepared or why it cannot be."""
        failure: str | None = None
        self._discard_prepared()
        try:
            self._prepared = self._fresh(proposal)
        except FullrankError as error:
            failure = str(error)
        except Exception as error:
            _log.exception("preparing %s failed", proposal.version)
            failure = f"{type(error).__name__}: {error}"
        if failure is None:
            self._models.failures.pop(proposal.version, None)
        else:
            self._models.failures[proposal.version] = failure
            _log.error("cannot prepare %s: %s", proposal.version, failure)
        self._is_open = True
        self._presence.publish(
            proposal=proposal.id,
            prepared=None if self._prepared is None else proposal.version,
            failure=failure,
        )

    def _discard_prepared(self) -> None:
        bundle, self._prepared = self._prepared, None
        if bundle is not None:
            self._models.release([bundle])

    def _fresh(self, proposal: Proposal) -> Bundle:
        loaded = self._models.serving.models.get(proposal.version)
        if loaded is not None and self._loader.is_unchanged(loaded):
            return loaded
        report = self._presence.report
        if proposal.host != report.host:
            # The coordinator has already checked the memory of its own machine.
            lacking = [
                other
                for other in reports(self._root)
                if other.host == report.host and proposal.version not in other.loaded
            ]
            info = find(self._root, proposal.version)
            check_memory(read_manifest(info.path), max(1, len(lacking)))
        return self._loader.open(proposal.version, proposal.manifest_sha256)

    def follow(self, *, preload: bool = False) -> None:
        # Before the state is read: if it is replaced in between, the next round finds it changed.
        self._followed = fingerprint(self._root / STATE)
        self._retry_at = float("inf")
        try:
            state = read_state(self._root)
        except StateDamaged as error:
            _log.error("%s", error)
            self._models.failures[ALIAS] = f"{error}"
            self._retry_at = time.monotonic() + _RETRY_S
            return
        self._models.pinned = pinned(state, self._models.max_loaded)
        step = self._step(state, preload)
        self._models.failures.pop(ALIAS, None)
        if step.activate is not None:
            self._activate(step, state)
        has_added = False
        for version in step.load:
            try:
                self._models.add(self._bundle(version))
                has_added = True
            except FullrankError as error:
                self._models.failures[version] = str(error)
                self._retry_at = time.monotonic() + _RETRY_S
                _log.error("cannot load %s: %s", version, error)
        serving = self._models.serving
        if has_added and state is not None and self._lacks(state):
            # A collection or an experiment can have its version now.
            self._activate(Step((), state.version, state.generation), state)
            serving = self._models.serving
        if serving.active is None or ALIAS in self._models.failures:
            wait = _RETRY_S if ALIAS in self._models.failures else _EMPTY_S
            self._retry_at = time.monotonic() + wait
        self._presence.publish(
            generation=serving.generation, version=serving.active, loaded=tuple(serving.models)
        )

    def _step(self, state: ActiveState | None, preload: bool) -> Step:
        serving = self._models.serving
        holding = Holding(serving.generation, serving.active, serving.models)
        if (
            state is not None
            and state.version is not None
            and not preload
            and set(self._models.pinned) <= {*serving.models, state.version}
        ):
            return next_step(state, holding, [])  # a switch does not need a list of the folder

        def decide(elsewhere: list[str]) -> Step:
            return next_step(
                state,
                holding,
                [_named(info) for info in available(self._root)],
                self._default_model,
                preload=preload,
                max_loaded=self._models.max_loaded,
                served_elsewhere=elsewhere,
            )

        if serving.active is not None or (state is not None and state.version is not None):
            return decide([])
        with choosing(self._root):
            own = self._presence.report.id
            step = decide([r.version for r in reports(self._root) if r.version and r.id != own])
            if step.activate is not None:
                self._presence.publish(version=step.activate)
        return step

    def _activate(self, step: Step, state: ActiveState | None) -> None:
        assert step.activate is not None
        noted = state if state is not None and state.version is not None else None
        try:
            bundle = self._bundle(step.activate, noted.manifest_sha256 if noted else None)
        except FullrankError as error:
            self._models.failures[step.activate] = str(error)
            self._models.failures[ALIAS] = f"{step.activate}: {error}"
            _log.error("cannot serve %s: %s", step.activate, error)
        else:
            previous = noted.previous if noted else None
            self._models.switch(
                bundle, step.generation, previous, self._experiment(noted), self._collections(noted)
            )

    def _lacks(self, state: ActiveState) -> bool:
        """Return whether this worker serves a state without all of its collections or its experiment."""
        serving = self._models.serving
        if state.version is None or state.version != serving.active:
            return False
        if state.generation != serving.generation:
            return False
        return (serving.collections, serving.experiment) != (state.collections, state.experiment)

    def _experiment(self, own: ActiveState | Active | None) -> Experiment | None:
        """Return an experiment, its candidate loaded; None if it cannot be: the active version serves."""
        if own is None or own.experiment is None:
            return None
        return own.experiment if self._is_loaded(own.experiment.candidate) else None

    def _collections(self, state: ActiveState | None) -> Mapping[str, Active]:
        """Return what collections serve, all of it loaded; what cannot be loaded is left out."""
        found = {}
        for name, own in () if state is None else state.collections.items():
            if own.version is not None and self._is_loaded(own.version, own.manifest_sha256):
                found[name] = replace(own, experiment=self._experiment(own))
        return found

    def _is_loaded(self, version: str, sha256: str | None = None) -> bool:
        try:
            self._models.add(self._bundle(version, sha256))
        except FullrankError as error:
            self._models.failures[version] = str(error)
            _log.error(
                "cannot load %s, which a collection or an experiment needs: %s", version, error
            )
            return False
        return True

    def _bundle(self, version: str, sha256: str | None = None) -> Bundle:
        if self._prepared is not None and self._prepared.version == version:
            return self._prepared
        loaded = self._models.serving.models.get(version)
        return loaded if loaded is not None else self._loader.open(version, sha256)


def _named(info: BundleInfo) -> Available:
    return Available(info.name, info.version)
