"""The sets that one router has loaded, and which of them serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from logging import getLogger

from fullrank.bundle import BundleInfo
from fullrank.models.contract import warm
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.documents import SetDocuments
from fullrank_fleet.serving.head import Head
from fullrank_fleet.sets import read_set
from fullrank_service.models.serving import LoadedModels, Serving
from fullrank_service.models.state import Experiment
from fullrank_service.telemetry.metrics import Metrics

_log = getLogger(__name__)


class SetModels:
    """The sets of one router.

    A swap calls ``add`` on every router, once all shards have the version open, and then ``switch``.

    Args:
        cache: Where bundles of object storage are downloaded to.
        metrics: Shows what serves.
        documents: Follows the log of live documents for each set.
        max_loaded: Sets kept loaded, besides pinned ones.
    """

    def __init__(
        self,
        cache: BundleCache,
        metrics: Metrics,
        documents: SetDocuments,
        max_loaded: int = 2,
    ) -> None:
        self._cache, self._metrics, self._documents = cache, metrics, documents
        self._models = LoadedModels(metrics, max_loaded, documents.release)

    @property
    def serving(self) -> Serving:
        """What serves now; read it once for a request."""
        return self._models.serving

    @property
    def failures(self) -> Mapping[str, str]:
        """Why sets do not serve; a swap that fails adds none."""
        return self._models.failures

    async def add(self, address: str) -> Head:
        """Load a set; requests can name it from then on. No shard needs to answer for that.

        Args:
            address: Of the folder of the set, <root>/<name>/<version>.

        Raises:
            BundleError: The set or its model is missing or damaged, or the log of live documents cannot be read.
            RemoteError: A file cannot be read.
        """
        manifest = await asyncio.to_thread(read_set, Folder(address))
        loaded = self.serving.models.get(manifest.version)
        if isinstance(loaded, Head) and loaded.set.set_id == manifest.set_id:
            return loaded
        head = await asyncio.to_thread(
            Head.open,
            Folder(address),
            manifest,
            self._cache,
            takes_writes=self._documents.takes_writes,
        )
        await asyncio.to_thread(_warm, head)
        await asyncio.to_thread(self._documents.prepare, head)
        self._models.add(head)
        return head

    def pin(self, versions: Sequence[str]) -> None:
        """Keep versions loaded, and no others beyond the maximum; they are loaded, or will be."""
        self._models.pinned = tuple(versions)

    def refuse(self, version: str, reason: str) -> None:
        """Note why a set that other routers may have is not loaded here."""
        if self._models.failures.get(version) != reason:
            _log.error("cannot load %s: %s", version, reason)
        self._models.failures[version] = reason

    def switch(
        self,
        version: str,
        generation: int,
        previous: str | None = None,
        experiment: Experiment | None = None,
    ) -> None:
        """Make a loaded set the default, as a generation; nothing happens if it is already.

        Args:
            version: Of the set.
            generation: Its number.
            previous: The version that was the default before.
            experiment: Against the version; its candidate is loaded.
        """
        serving = self.serving
        now = serving.generation, serving.active, serving.previous, serving.experiment
        if now == (generation, version, previous, experiment):
            return
        head = serving.models[version]
        assert isinstance(head, Head)
        self._models.switch(head, generation, previous, experiment)
        self._metrics.bundle_bytes.set(sum(shard.bytes for shard in head.set.shards))

    def available(self) -> list[BundleInfo]:
        """Return the loaded sets, newest first."""
        heads = [head for head in self.serving.models.values() if isinstance(head, Head)]
        found = [
            BundleInfo(
                head.name,
                head.version,
                head.path,
                head.set.created,
                head.card,
                sum(shard.bytes for shard in head.set.shards),
            )
            for head in heads
        ]
        return sorted(found, key=lambda info: (info.created, info.version), reverse=True)


def _warm(head: Head) -> None:
    """Build the tables that the first request would build."""
    warm(head.model)
    head.known_words.warm()
    head.prefixes.of("warm")
