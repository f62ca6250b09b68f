"""Answers for the documents of one shard."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from logging import getLogger

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError, FilterError
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.answering import OpenShard
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.replicas import Answers
from fullrank_fleet.serving.tracking import SILENT_S
from fullrank_fleet.serving.wire import Ask, Refused, Reply, pack, unpack_ask
from fullrank_fleet.sets.manifest import SetManifest, fetch_shard, read_set
from fullrank_service.base.background import trim_heap
from fullrank_service.documents.follow import Tail
from fullrank_service.search.ranking import SearchModePolicy
from fullrank_service.search.restricting import Bitmaps

_log = getLogger(__name__)

# Calls that are answered at once; others wait.
_THREADS = 2
# Bytes for results of filters, and the longest mean time of an exact search.
_FILTER_BYTES, _EXACT_S = 64 << 20, 0.025
# Copies of released versions that stay on the disk, so that going back to one downloads nothing.
_KEPT_COPIES = 2


class ShardServer:
    """The versions of one shard that this process has open. Any thread may call any method."""

    def __init__(self, number: int, cache: BundleCache, log: LogSource | None = None) -> None:
        self.number = number
        self._cache, self._log = cache, log
        self._bitmaps = Bitmaps(_FILTER_BYTES)
        self._policy = SearchModePolicy(_EXACT_S)
        self._open: dict[str, OpenShard] = {}
        # When each version was last asked for.
        self._asked: dict[str, float] = {}
        # Hashes of manifests, the latest last.
        self._released: list[str] = []
        self._loading = threading.Lock()
        self._answering = threading.Semaphore(_THREADS)

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self._open)

    def load(self, address: str) -> str:
        """Open the bundle of this shard in the set at an address, unless it is open, and return the version of the set.

        Raises:
            BundleError: The set or the bundle is missing or damaged, or has no documents in this shard; or the log of
                live documents cannot be read.
            RemoteError: A file cannot be read.
        """
        with self._loading:
            manifest = read_set(Folder(address))
            loaded = self._open.get(manifest.version)
            if loaded is None or loaded.manifest.set_id != manifest.set_id:
                bundle = self._bundle(Folder(address), manifest)
                tail = self._tail(bundle, manifest)
                opened = OpenShard(bundle, manifest, self._bitmaps, self._policy, tail)
                self._open = {**self._open, manifest.version: opened}
                _log.info("shard %d opened %s", self.number, manifest.version)
                if loaded is not None:
                    loaded.close()
                trim_heap()
            return manifest.version

    def release(self, version: str) -> None:
        """Forget a version; answers under way are finished. Copies of earlier ones are deleted from the disk."""
        with self._loading:
            released = self._open.get(version)
            if released is None:
                return
            self._open = {own: shard for own, shard in self._open.items() if own != version}
            self._asked.pop(version, None)
            released.close()
            self._released.append(self._copy_of(released.manifest))
            self._discard()
            trim_heap()

    def release_idle(self, versions: Sequence[str], idle_s: float = SILENT_S) -> tuple[str, ...]:
        """Forget versions, and return those that can be asked for; one that was asked for lately stays.

        A router that cannot reach the coordinator may still ask.
        """
        oldest = time.monotonic() - idle_s
        for version in versions:
            if self._asked.get(version, oldest) <= oldest:
                self.release(version)
        return self.versions

    def answers(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        """Answer requests that came together, each by itself, once few enough other calls are being answered.

        Args:
            left_s: Seconds from now until nobody waits for the answer of each: it is not begun later.

        Returns:
            For each the answer, or why another replica must be asked: a defect, no version yet because the process was
            just started again, or TimeoutError.
        """
        now = time.monotonic()
        with self._answering:
            return [
                self._outcome(payload, now + left)
                for payload, left in zip(payloads, left_s, strict=True)
            ]

    def _outcome(self, payload: bytes, until: float) -> bytes | Exception:
        if time.monotonic() > until:
            return TimeoutError("nobody waits for the answer any more")
        try:
            return pack(self._reply(unpack_ask(payload)))
        except ConnectionError as error:
            return error
        except Exception as error:
            _log.exception("shard %d failed", self.number)
            # An exception of another library may not survive the way to the router.
            return RuntimeError(f"{type(error).__name__}: {error}")

    def _reply(self, ask: Ask) -> Reply:
        shard = self._open.get(ask.version)
        if shard is None or shard.manifest.set_id != ask.set_id:
            raise ConnectionError(f"has {', '.join(self.versions) or 'no version'} open")
        self._asked[ask.version] = time.monotonic()
        try:
            return shard.reply(ask)
        except FilterError as error:
            return Refused(error.path, error.reason)

    def _tail(self, bundle: Bundle, manifest: SetManifest) -> Tail | None:
        if self._log is None:
            return None
        place = self._log.place(manifest.owned[self.number])
        tail = Tail(place, poll_s=self._log.poll_s)
        tail.prepare(bundle)
        tail.start()
        return tail

    def _copy_of(self, manifest: SetManifest) -> str:
        sha256 = manifest.shards[self.number].manifest_sha256
        assert sha256 is not None  # only a shard without documents has no bundle
        return sha256

    def _discard(self) -> None:
        """Delete the copies of all but the latest released versions. Versions may share one, so not if one is open."""
        used = {self._copy_of(shard.manifest) for shard in self._open.values()}
        latest = [sha for sha in dict.fromkeys(reversed(self._released)) if sha not in used]
        for sha256 in latest[_KEPT_COPIES:]:
            self._cache.discard(sha256)
        self._released = latest[_KEPT_COPIES - 1 :: -1]

    def _bundle(self, folder: Folder, manifest: SetManifest) -> Bundle:
        if self.number >= len(manifest.shards) or not manifest.shards[self.number].documents:
            raise BundleError(f"{folder}: has no documents in shard {self.number}")
        bundle = open_bundle(fetch_shard(self._cache, folder, manifest, self.number))
        # A shard without writes is the same bundle in several sets, so only set.json has its position.
        position = replace(bundle.manifest, log_position=manifest.log_position)
        bundle = replace(bundle, manifest=position)
        # open_bundle has read the pages when it replayed the golden queries. This builds the tables in memory.
        bundle.retriever.warm()
        return bundle
