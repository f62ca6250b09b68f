"""The models of one worker as the rest of the service sees them: what serves, and what an operator can ask for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from fullrank.bundle.catalog import Bundle, BundleInfo, open_bundle
from fullrank.errors import BundleNotFound
from service import errors
from service.models import loader, swap, workers
from service.models.follower import Follower
from service.models.serving import Serving, Shelf
from service.models.swap import Swap, Swapped
from service.models.workers import Presence, Report
from service.telemetry.metrics import Metrics


class Registry:
    """Requests read ``serving``; everything slow happens on other threads.

    prepare  called on the loading thread with each bundle before it may serve
    release  called with each bundle that was let go
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
        self._shelf = Shelf(metrics, max_loaded, release)
        self._loader = loader.Loader(root, opener, prepare)
        self._presence = Presence(root)
        self._follower = Follower(
            root,
            self._shelf,
            self._loader,
            self._presence,
            default_model=default_model,
            poll_s=poll_s,
        )
        self._stop = threading.Event()
        self._swap = Swap(root, timeout_s=timeout_s, stop=self._stop, nudge=self._follower.nudge)

    @property
    def serving(self) -> Serving:
        """What serves now; take it once for a request."""
        return self._shelf.serving

    @property
    def failures(self) -> dict[str, str]:
        """Why versions were refused, and under ALIAS why what is noted does not serve."""
        return self._shelf.failures

    async def start(self) -> None:
        """Come up on the noted version, else on what the others serve, else on the newest."""
        await asyncio.to_thread(self._follower.come_up, self._preload)
        self._follower.start()

    async def close(self) -> None:
        """Stop following; a swap that this worker coordinates and has not committed is withdrawn."""
        self._stop.set()
        await asyncio.to_thread(self._follower.close)

    async def available(self) -> list[BundleInfo]:
        """Every bundle on disk, newest first; none where the folder does not exist."""
        return await asyncio.to_thread(loader.available, self._root)

    async def workers(self) -> list[Report]:
        """What every worker that shares the folder says of itself."""
        return await asyncio.to_thread(workers.reports, self._root)

    async def activate(self, version: str) -> Swapped:
        """Let a version serve as the default in every worker: load, verify, warm, commit, switch.

        Raises ModelNotFound, BundleRefused, Conflict or Internal; then nothing was changed.
        """
        return await self._ask(self._swap.activate, version)

    async def load(self, version: str) -> Bundle:
        """Let every worker hold a version beside what serves. Raises as ``activate``."""
        await self._ask(self._swap.load, version)
        return self.serving.resolve(version)

    async def _ask(self, work: Callable[[str], Swapped], version: str) -> Swapped:
        try:
            swapped = await asyncio.to_thread(work, version)
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
