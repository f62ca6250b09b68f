"""The sets that one router has loaded, and which of them serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Never

from fleet.remote import BundleCache, Folder
from fleet.serving.documents import SetDocuments
from fleet.serving.head import Head, open_any_shard
from fleet.sets import SetManifest, read_set
from fleet.sets.words import read_words
from fullrank.bundle import Bundle, BundleInfo
from service.errors import NotSupported
from service.models.serving import LoadedModels, Serving
from service.models.workers import Report
from service.telemetry.metrics import Metrics

Starting = Callable[["SetModels"], Awaitable[None]]
"""Loads what serves first."""


class SetModels:
    """The sets of one router; see ``service.models.models``.

    A swap calls ``add`` on every router, once all shards have the version open, and then ``switch``.

    Args:
        cache: Where bundles of object storage are downloaded to.
        metrics: Shows what serves.
        documents: Follows the log of live documents for each set.
        starting: Called when the app starts.
        max_loaded: Sets kept loaded.
    """

    def __init__(
        self,
        cache: BundleCache,
        metrics: Metrics,
        documents: SetDocuments,
        starting: Starting,
        max_loaded: int = 2,
    ) -> None:
        self._cache, self._metrics, self._starting = cache, metrics, starting
        self._documents = documents
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
        shard = await asyncio.to_thread(self._opened, address, manifest)
        words = await asyncio.to_thread(read_words, Folder(address), manifest)
        takes_writes = self._documents.takes_writes
        head = Head.of(shard, manifest, takes_writes=takes_writes, words=words)
        await asyncio.to_thread(_warm, head)
        await asyncio.to_thread(self._documents.prepare, head)
        self._models.add(head)
        return head

    def switch(self, version: str, generation: int) -> None:
        """Make a loaded set the default, as a generation; the one before stays loaded."""
        head = self.serving.models[version]
        assert isinstance(head, Head)
        active = self.serving.active
        previous = active if active != version else self.serving.previous
        self._models.switch(head, generation, previous)
        self._metrics.bundle_bytes.set(sum(shard.bytes for shard in head.set.shards))

    async def start(self) -> None:
        """Load what serves first."""
        await self._starting(self)

    async def close(self) -> None:
        """Nothing runs in the background."""

    async def available(self) -> list[BundleInfo]:
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

    async def workers(self) -> list[Report]:
        """Return no reports: routers write none."""
        return []

    async def activate(self, version: str) -> Never:
        """Refuse: one router cannot switch the others."""
        raise NotSupported("A router switches no versions: use `fullrank bundles activate`.")

    async def load(self, version: str) -> Never:
        """Refuse: one router cannot load a version in the shards."""
        raise NotSupported("A router loads no versions: use `fullrank bundles activate`.")

    async def start_experiment(self, candidate: str, share: float, max_days: float) -> Never:
        """Refuse experiments."""
        raise NotSupported("A fleet runs no experiments.")

    async def stop_experiment(self) -> Never:
        """Refuse experiments."""
        raise NotSupported("A fleet runs no experiments.")

    def _opened(self, address: str, manifest: SetManifest) -> Bundle:
        return open_any_shard(address, manifest, self._cache)


def _warm(head: Head) -> None:
    """Build the tables that the first request would build."""
    head.model.encode_queries(["warm up"])
    head.known_words.warm()
    head.prefixes.of("warm")
