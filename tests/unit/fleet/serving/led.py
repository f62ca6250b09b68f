"""A fleet in this process: replicas, a coordinator over them, and routers that follow it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fullrank_fleet.remote import BundleCache
from fullrank_fleet.serving import tracking as routers
from fullrank_fleet.serving.app import create_router
from fullrank_fleet.serving.coordinator import Coordinator
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.replicas import Answers
from fullrank_fleet.serving.shard import ShardServer
from tests.api.support import Client, client_of, settings_for

# Real replicas are processes of their own. In one process Python before 3.11.5 fails where two threads compile at once
# (https://github.com/python/cpython/issues/106905), as kernels do when they are first used.
_loading = threading.Lock()


class Freezable:
    """A process that answers nothing while it is frozen."""

    def __init__(self) -> None:
        self.is_frozen = False

    async def thawed(self) -> None:
        while self.is_frozen:
            await asyncio.sleep(0.01)


class LocalReplica(Freezable):
    """A replica in this process; it dies, or freezes, when it loads some versions."""

    def __init__(self, number: int, cache: Path, log: LogSource | None) -> None:
        super().__init__()
        self._arguments = number, BundleCache(cache), log
        self.refused: set[str] = set()
        self.freezing: set[str] = set()
        self.is_dead = False
        self.instance = 0
        self.server = ShardServer(*self._arguments)

    async def load(self, address: str) -> Sequence[str]:
        await self._act()
        version = address.rpartition("/")[2]
        if version in self.refused:
            raise ConnectionError("died while it loaded")
        if version in self.freezing:
            self.is_frozen = True
        await self.thawed()
        await asyncio.to_thread(self._load, address)
        return self.server.versions

    async def release(self, versions: Sequence[str]) -> Sequence[str]:
        await self._act()
        return await asyncio.to_thread(self.server.release_idle, versions, routers.SILENT_S)

    async def ping(self) -> str:
        await self._act()
        return str(self.instance)

    async def node(self) -> str:
        return "here"

    async def stop(self) -> None:
        self.is_dead = True

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        await self._act()
        return await asyncio.to_thread(self.server.answers, payloads, left_s)

    def restart(self) -> None:
        self.close()
        self.server = ShardServer(*self._arguments)
        self.instance, self.is_dead = self.instance + 1, False

    def close(self) -> None:
        for version in self.server.versions:
            self.server.release(version)

    def _load(self, address: str) -> None:
        with _loading:
            self.server.load(address)

    async def _act(self) -> None:
        await self.thawed()
        if self.is_dead:
            raise ConnectionError("died")


class LocalCoordinator(Freezable):
    """A coordinator of this process, as routers reach it."""

    def __init__(self, own: Coordinator) -> None:
        super().__init__()
        self.own = own
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.is_dead:
                raise ConnectionError("died")
            await self.thawed()
            # A process goes on with what it was asked for if the caller gives up.
            found = await asyncio.shield(getattr(self.own, name)(*arguments, **options))
            await self.thawed()
            return found

        return call


class LocalFleet:
    """Replicas, and the coordinator while it runs."""

    def __init__(self, root: Path, cache: Path, log: LogSource | None = None) -> None:
        self.root = root
        self._cache, self._log = cache, log
        self.replicas: dict[int, LocalReplica] = {}
        self._coordinator: Coordinator | None = None
        self._handle: LocalCoordinator | None = None

    @property
    def coordinator(self) -> Coordinator:
        assert self._coordinator is not None
        return self._coordinator

    @property
    def handle(self) -> Any:
        """The coordinator for routers: a ``LocalCoordinator``."""
        assert self._handle is not None
        return self._handle

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run a coordinator; the replicas stay afterwards."""
        fingerprint = None if self._log is None else self._log.fingerprint
        self._coordinator = Coordinator(str(self.root), 1, self._spawn, fingerprint)
        self._handle = LocalCoordinator(self._coordinator)
        await self._coordinator.start()
        try:
            yield
        finally:
            await self._coordinator.close()

    @asynccontextmanager
    async def router(
        self,
        name: str = "router",
        rejoin: Callable[[], Awaitable[None]] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Client]:
        """A router that follows the coordinator; name: of its own folder; rejoin: as of Following."""
        folder = self.root / f".{name}"
        folder.mkdir(exist_ok=True)
        app = create_router(
            settings_for(folder, **settings),
            BundleCache(self._cache),
            self.handle,
            rejoining=None if rejoin is None else lambda _: rejoin,
        )
        async with client_of(app) as client:
            yield client

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.close()

    def _spawn(self, number: int, place: int, node: str | None = None) -> LocalReplica:
        if number not in self.replicas:
            self.replicas[number] = LocalReplica(number, self._cache, self._log)
        return self.replicas[number]
