"""The models of one worker, for the rest of the service: what serves, and what an operator may request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Protocol

from fullrank.bundle import Bundle, BundleInfo, open_bundle
from fullrank.errors import BundleNotFound
from fullrank_service.base import errors
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.deps import Serving, part
from fullrank_service.models import loader, swap, workers
from fullrank_service.models.follower import Follower, LoadedModels
from fullrank_service.models.outline import Outline, outline_of
from fullrank_service.models.swap import Swap, Swapped
from fullrank_service.models.workers import Presence, Report


class Models(Protocol):
    """What serves, and what an operator may request; ``Registry`` describes the methods."""

    @property
    def serving(self) -> Serving: ...
    @property
    def failures(self) -> Mapping[str, str]: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def outline(self, bundle: Bundle) -> Outline: ...
    async def available(self) -> list[BundleInfo]: ...
    async def workers(self) -> list[Report]: ...
    async def activate(self, version: str, collection: str | None = None) -> Swapped: ...
    async def load(self, version: str) -> Bundle: ...
    async def start_experiment(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Swapped: ...
    async def stop_experiment(self, collection: str | None = None) -> Swapped: ...


ModelsDep = Annotated[Models, part("models")]


class Registry:
    """The models of one worker. Requests read ``serving``; all slow work happens on other threads.

    Args:
        default_model: name of the bundle that serves while none was activated; None: the newest.
        preload: load the newest version of every other bundle name at start.
        timeout_s: longest wait of a swap until every worker is prepared.
        prepare: called on the loading thread with each bundle before it may serve.
        release: called with each bundle that was dropped.
    """

    def __init__(
        self,
        root: Path,
        metrics: Metrics,
        *,
        default_model: str | None = None,
        preload: bool = True,
        max_loaded: int = 8,
        poll_s: float = 0.05,
        timeout_s: float = swap.TIMEOUT_S,
        opener: Callable[[Path], Bundle] = open_bundle,
        prepare: Callable[[Bundle], None] | None = None,
        release: Callable[[Bundle], None] | None = None,
    ) -> None:
        self._root = root
        self._metrics = metrics
        self._preload = preload
        self._models = LoadedModels(metrics, max_loaded, release)
        self._loader = loader.Loader(root, opener, prepare)
        self._presence = Presence(root)
        self._follower = Follower(
            root,
            self._models,
            self._loader,
            self._presence,
            default_model=default_model,
            poll_s=poll_s,
            failed=metrics.background_failed,
        )
        # Swaps wait for minutes, others meanwhile are refused at once: not on the threads of writes and reads.
        self._swaps = ThreadPoolExecutor(2, thread_name_prefix="swap")
        self._stop = threading.Event()
        self._swap = Swap(root, timeout_s=timeout_s, stop=self._stop, nudge=self._follower.nudge)

    @property
    def serving(self) -> Serving:
        """What serves now; read it once for a request."""
        return self._models.serving

    @property
    def failures(self) -> dict[str, str]:
        """Why versions were refused, and under ALIAS why the activated version does not serve."""
        return self._models.failures

    async def start(self) -> None:
        """Load the activated version, else what other workers serve, else the newest."""
        await asyncio.to_thread(self._follower.load_initial, self._preload)
        self._follower.start()

    async def close(self) -> None:
        """Stop following; withdraw a swap that this worker coordinates and has not committed."""
        self._stop.set()
        await asyncio.to_thread(self._follower.close)

    async def outline(self, bundle: Bundle) -> Outline:
        """Return the outline of a loaded bundle."""
        # On a thread, because the first call reads the values of all fields.
        return await asyncio.to_thread(outline_of, bundle)

    async def available(self) -> list[BundleInfo]:
        """Return every bundle on disk, newest first; an empty list if the folder does not exist."""
        return await asyncio.to_thread(loader.available, self._root)

    async def workers(self) -> list[Report]:
        """Return the reports of all workers that share the folder."""
        return await asyncio.to_thread(workers.reports, self._root)

    async def activate(self, version: str, collection: str | None = None) -> Swapped:
        """Make a version the default in every worker, as ``Swap.activate``.

        Raises:
            ModelNotFound, BundleRefused, Conflict, Internal: Nothing was changed.
        """
        return await self._run(self._swap.activate, version, collection)

    async def load(self, version: str) -> Bundle:
        """Load a version in every worker; the default stays. Raises as ``activate``."""
        await self._run(self._swap.load, version)
        return self.serving.resolve(version)

    async def start_experiment(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Swapped:
        """Interleave a version with the active one in every worker. Raises as ``activate``."""
        return await self._run(self._swap.start_experiment, candidate, share, max_days, collection)

    async def stop_experiment(self, collection: str | None = None) -> Swapped:
        """End the experiment in every worker. Raises as ``activate``."""
        return await self._run(self._swap.stop_experiment, collection)

    async def _run(self, work: Callable[..., Swapped], *arguments: Any) -> Swapped:
        try:
            swapped = await asyncio.get_running_loop().run_in_executor(
                self._swaps, work, *arguments
            )
        except swap.SwapUnderWay:
            raise errors.Conflict from None
        except BundleNotFound as error:
            raise errors.ModelNotFound(str(error)) from error
        except swap.SwapRefused as error:
            self._metrics.swaps.labels("refused").inc()
            raise errors.BundleRefused(str(error)) from error
        except swap.SwapFailed as error:
            self._metrics.swaps.labels("failed").inc()
            raise errors.Internal(str(error)) from error
        self._metrics.swaps.labels("done").inc()
        return swapped
