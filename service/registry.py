"""The models of one worker: which are loaded, which one serves, and how that changes.

A request takes ``registry.serving`` once and keeps it, so its answer is wholly of one generation
whatever is swapped meanwhile. Everything slow (reading, hashing, golden replay, warming) happens on
a thread of its own before the switch, which is one reference assignment. A failure at any step
leaves what served untouched.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from fullrank.bundle import Bundle, BundleInfo, list_bundles, open_bundle
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank.manifest import MANIFEST
from service import errors
from service.metrics import Metrics
from service.policy import Available, Holding, next_step, to_drop
from service.state import (
    ActiveState,
    Locked,
    StateDamaged,
    fingerprint,
    lock,
    read_state,
    write_state,
)

ALIAS = "default"
# After a failed attempt to follow the note, seconds before the next one.
_RETRY_S = 5.0
_log = getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Serving:
    """One generation, never changed after it is made: a request holds exactly one.

    models are by version, oldest load first; active and previous are versions or None.
    """

    generation: int = 0
    active: str | None = None
    previous: str | None = None
    models: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}))

    def resolve(self, model: str | None) -> Bundle:
        """The bundle an alias, a version or a bundle name (its newest loaded version) means.

        None means the default. Raises ModelNotFound, or NotReady when nothing is active.
        """
        if model is None or model == ALIAS:
            if self.active is None:
                raise errors.NotReady("No model is loaded; /v1/models says why.")
            return self.models[self.active]
        if model in self.models:
            return self.models[model]
        named = [bundle for bundle in self.models.values() if bundle.name == model]
        if not named:
            raise errors.ModelNotFound(
                f"No loaded model is called {model!r}; GET /v1/models lists them."
            )
        return max(named, key=lambda bundle: (bundle.manifest.created, bundle.version))


class Registry:
    """Loads, verifies, swaps. All methods run on the event loop; loading runs on its own thread."""

    def __init__(
        self,
        root: Path,
        metrics: Metrics,
        *,
        default_model: str | None = None,
        preload: bool = True,
        max_loaded: int = 8,
        poll_s: float = 0.5,
        opener: Callable[[Path], Bundle] = open_bundle,
    ) -> None:
        self.serving = Serving()
        self.failures: dict[str, str] = {}
        self._root = root
        self._metrics = metrics
        self._default_model = default_model
        self._preload = preload
        self._max_loaded = max_loaded
        self._poll_s = poll_s
        self._opener = opener
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._change = asyncio.Lock()
        self._asked = False
        self._seen: tuple[int, int, int] | None = None

    # -- what is there ------------------------------------------------------------------------

    async def available(self) -> list[BundleInfo]:
        """Every bundle on disk, newest first; none where the folder does not exist."""
        # Not on the loader's thread: a list must not wait for a bundle being verified.
        return await asyncio.to_thread(self._list)

    def _list(self) -> list[BundleInfo]:
        try:
            return list_bundles(self._root)
        except BundleNotFound:
            return []

    # -- following the note -------------------------------------------------------------------

    async def start(self) -> None:
        """Come up on the noted version, else on the newest; load the others beside it."""
        await self._follow(preload=self._preload)
        if self.serving.active is None:
            _log.warning("no model to serve yet under %s", self._root)

    async def run(self) -> None:
        """Follow the note until cancelled."""
        wait = self._poll_s
        while True:
            await asyncio.sleep(wait)
            settled = self.serving.active is not None and ALIAS not in self.failures
            if settled and fingerprint(self._root) == self._seen:
                continue
            try:
                await self._follow()
            except Exception:
                # The worker must outlive whatever the disk does; the next round tries again.
                _log.exception("following the active version failed")
                self.failures[ALIAS] = "following the active version failed; see the log"
            wait = _RETRY_S if self.failures.get(ALIAS) else self._poll_s

    async def close(self) -> None:
        """Stop the loader thread."""
        self._loader.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, *, preload: bool = False) -> None:
        async with self._change:
            # Taken before the note is read: one replaced in between is then seen the next time.
            self._seen = fingerprint(self._root)
            try:
                state = await self._off_loop(lambda: read_state(self._root))
            except StateDamaged as error:
                _log.error("%s", error)
                self.failures[ALIAS] = f"{error}"
                return
            infos = {info.version: info for info in await self.available()}
            step = next_step(
                state,
                Holding(self.serving.generation, self.serving.active, self.serving.models),
                [Available(info.name, info.version) for info in infos.values()],
                self._default_model,
                preload=preload,
            )
            self.failures.pop(ALIAS, None)
            if step.activate is not None:
                sha256 = state.manifest_sha256 if state is not None else None
                try:
                    bundle = await self._bundle(step.activate, infos, sha256)
                except FullrankError as error:
                    self.failures[ALIAS] = f"{step.activate}: {error}"
                    _log.error("cannot serve %s: %s", step.activate, error)
                else:
                    self._switch(bundle, step.generation)
            for version in step.load:
                try:
                    self._hold(await self._bundle(version, infos))
                except FullrankError as error:
                    _log.error("cannot load %s: %s", version, error)

    # -- what an operator asks for ------------------------------------------------------------

    async def load(self, version: str) -> Bundle:
        """Load and verify a version without serving it by default; the other workers follow.

        Raises ModelNotFound, BundleRefused or Conflict.
        """

        async def work() -> Bundle:
            bundle = await self._opened(version)
            state = read_state(self._root) or ActiveState(self.serving.generation)
            if version not in state.loaded:
                # Versions no longer on disk would only pile up.
                held = [v for v in state.loaded if v in self.serving.models]
                await self._note(replace(state, loaded=(*held, version)))
            self._hold(bundle)
            return bundle

        return await self._exclusive(work)

    async def activate(self, version: str) -> Serving:
        """Let a version serve as the default: load, verify, warm, note, switch.

        Activating what is active changes nothing. Raises ModelNotFound, BundleRefused or Conflict.
        """

        async def work() -> Serving:
            bundle = await self._opened(version)
            state = read_state(self._root) or ActiveState()
            if state.version == version == self.serving.active:
                return self.serving
            generation = max(state.generation, self.serving.generation) + 1
            sha256 = await self._off_loop(lambda: _manifest_sha256(bundle.path))
            # The note first: if it cannot be written nothing has changed, and once it is written a
            # crash before the assignment comes back on the new version, as the other workers do.
            await self._note(ActiveState(generation, version, sha256, state.loaded))
            self._switch(bundle, generation)
            self.failures.pop(ALIAS, None)
            return self.serving

        return await self._exclusive(work)

    async def _exclusive(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an operator's change; Conflict when another is under way, here or elsewhere."""
        if self._asked:
            raise errors.Conflict
        self._asked = True
        try:
            async with self._change:
                with lock(self._root):
                    return await work()
        except Locked:
            raise errors.Conflict from None
        except BundleNotFound as error:
            raise errors.ModelNotFound(str(error)) from error
        except (BundleError, StateDamaged) as error:
            self._metrics.swaps.labels("refused").inc()
            raise errors.BundleRefused(str(error)) from error
        except FileNotFoundError:
            raise errors.ModelNotFound("The folder of the bundles does not exist.") from None
        except OSError as error:
            self._metrics.swaps.labels("failed").inc()
            _log.error("the active version cannot be noted: %s", error)
            raise errors.Internal(
                f"The change could not be written down ({error.strerror}); nothing was changed."
            ) from error
        finally:
            self._asked = False

    # -- doing --------------------------------------------------------------------------------

    async def _opened(self, version: str) -> Bundle:
        if version in self.serving.models:
            return self.serving.models[version]
        return await self._bundle(version, {info.version: info for info in await self.available()})

    async def _bundle(
        self, version: str, infos: Mapping[str, BundleInfo], manifest_sha256: str | None = None
    ) -> Bundle:
        """The loaded bundle, or load it: verify, then warm. Raises BundleError."""
        if version in self.serving.models:
            return self.serving.models[version]
        if version not in infos:
            raise BundleNotFound(f"No bundle has the version {version!r}.")
        path = infos[version].path

        def load() -> Bundle:
            if manifest_sha256 not in (None, _manifest_sha256(path)):
                raise BundleError(f"{path / MANIFEST}: not the manifest that was activated")
            bundle = self._opener(path)
            # The golden replay of open_bundle has read the pages; this builds what is built once.
            bundle.retriever.warm()
            bundle.model.encode_queries(["warm up"])
            return bundle

        try:
            return await self._off_loop(load)
        except BundleError as error:
            self.failures[version] = str(error)
            raise
        except OSError as error:
            self.failures[version] = str(error)
            raise BundleError(f"{path}: {error}") from error

    def _hold(self, bundle: Bundle) -> None:
        """Add a model beside what serves."""
        self.failures.pop(bundle.version, None)
        models = {**self.serving.models, bundle.version: bundle}
        self._publish(replace(self.serving, models=MappingProxyType(models)))
        _log.info("loaded %s", bundle.version)

    def _switch(self, bundle: Bundle, generation: int) -> None:
        self.failures.pop(bundle.version, None)
        old = self.serving
        previous = old.active if old.active != bundle.version else old.previous
        models = {**old.models, bundle.version: bundle}
        self._publish(Serving(generation, bundle.version, previous, MappingProxyType(models)))
        self._metrics.swaps.labels("done").inc()
        self._metrics.generation.set(generation)
        self._metrics.documents.set(len(bundle.documents))
        self._metrics.bundle_bytes.set(bundle.manifest.total_bytes)
        _log.info("generation %d serves %s", generation, bundle.version)

    def _publish(self, serving: Serving) -> None:
        newest = next(reversed(list(serving.models)), None)
        keep = {serving.active, serving.previous, newest}
        models = dict(serving.models)
        for version in to_drop(list(models), keep, self._max_loaded):
            del models[version]
        # The switch: requests that took the old reference finish on it.
        self.serving = replace(serving, models=MappingProxyType(models))
        self._metrics.models_loaded.set(len(models))

    async def _note(self, state: ActiveState) -> None:
        """Write the note; the sync that makes it last may take a while, so off the loop."""
        await self._off_loop(lambda: write_state(self._root, state))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._loader, work)


def _manifest_sha256(path: Path) -> str:
    with suppress(OSError):
        return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
    return ""
