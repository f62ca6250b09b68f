"""One corpus behind an ordinary service and behind routers over shards, for tests that compare them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np

from fullrank.models.contract import Model
from fullrank.models.linear import LinearModel
from fullrank.progress import Reporter
from fullrank.rerank.facts import DocumentFacts
from fullrank.rerank.stage import SecondStage
from fullrank.retrieval import Floor
from fullrank.storage.documents import Document
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.app import create_router
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.shard import ShardServer
from fullrank_fleet.sets import SetManifest, read_set
from fullrank_service.base.metrics import Metrics
from fullrank_service.models.workers import Report
from fullrank_trainer.indexing import index
from tests.api.support import client_of, running, settings_for
from tests.bundles import make_bundle

WORDS = [
    "copy",
    "files",
    "move",
    "remote",
    "host",
    "ssh",
    "list",
    "directory",
    "rename",
    "delete",
    "archive",
    "unpack",
]
BRANDS = ["acme", "zenith", "apex", "日本", ""]
# Words are evidence.
FLOOR = Floor(0.8, 0.5, 0.5, share=0.5, odds=10.0, unfamiliar=0.9, per_word=0.3, common=3.0)


def document(number: int) -> dict[str, Any]:
    """Return a corpus line; fields are missing, mixed, rare, or of several values."""
    rng = random.Random(number)
    fields: dict[str, Any] = {
        "_id": f"d/{number:04}",
        "title": " ".join(rng.choices(WORDS, k=rng.randint(0, 3))),
        "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 12))),
    }
    if rng.random() < 0.8:
        fields["stars"] = rng.randint(-2, 8) if rng.random() < 0.9 else rng.random() * 5
    if rng.random() < 0.8:
        fields["brand"] = rng.choice(BRANDS)
    if rng.random() < 0.6:
        fields["sizes"] = [rng.randint(0, 15) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.5:
        fields["mixed"] = rng.choice([1, "1", True, 2.5, ["1", 1]])
    if rng.random() < 0.5:
        fields["is_new"] = rng.random() < 0.5
    if rng.random() < 0.8:
        fields["published"] = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    if rng.random() < 0.3:
        # A time in one document of some shards, other texts in the others.
        fields["note"] = "2026-05-01" if rng.random() < 0.05 else rng.choice(["soon", "later"])
    if number == 7:
        fields |= {"rare": "only here", "alone": 5, "nested": {"a": 1}}
    if number % 50 == 0:
        fields["nothing"] = None
    return fields


class Whole:
    """A bundle, and the same documents as sets.

    Args:
        root: A folder for all of it.
        count: Number of documents.
        floor: What a document must reach to be found; None: every document is found.
        further: Returns more fields of a document, given its number.
        make_stage: Returns the second stage of the models, given the documents; None: they have none.
        wrap: As of ``make_bundle``.

    Attributes:
        ids, titles: Of the documents.
        versions: Of the bundles, that of the first model first.
    """

    def __init__(
        self,
        root: Path,
        count: int,
        floor: Floor | None = FLOOR,
        further: Callable[[int], Mapping[str, Any]] = lambda _: {},
        make_stage: Callable[[Sequence[Document]], SecondStage] | None = None,
        wrap: Callable[[LinearModel], Model] = lambda model: model,
    ) -> None:
        self.root = root
        lines = [{**document(number), **further(number)} for number in range(count)]
        (root / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
        documents = [
            Document(line["_id"], {k: v for k, v in line.items() if k != "_id"}) for line in lines
        ]
        self._documents, self._floor, self._make_stage = documents, floor, make_stage
        self._wrap = wrap
        self.versions: list[str] = []
        self.ids = [line["_id"] for line in lines]
        self.titles = {line["title"] or line["text"] for line in lines}
        self._trained = self.train(seed=1)

    def train(self, seed: int) -> Path:
        """Make a model of its own for the same documents, and a bundle; return the folder of the model."""
        folder = self.root / "trained"
        stage = None
        if self._make_stage is not None:
            found = self._make_stage(self._documents)
            fields = [{**d.fields, "clicked": f"{d.id}\ncopy {d.id[-1]}"} for d in self._documents]
            clicks = np.arange(len(fields), dtype=np.int32) % 5
            facts = DocumentFacts.of(fields, found.settings, clicks)
            stage = found, found.statistics.weigh(facts)
        version = make_bundle(
            folder,
            "planted",
            self._documents,
            n_dense=6,
            floor=self._floor,
            seed=seed,
            second_stage=stage,
            wrap=self._wrap,
        )
        trained = folder / "planted" / version
        corpus, out = self.root / "corpus.jsonl", self.root / "bundles"
        self.versions.append(index(trained, corpus, out, reporter=Reporter(quiet=True)).path.name)
        return trained

    def cut(self, shards: int, trained: Path | None = None) -> str:
        """Return the address of the same documents in so many shards; trained: another model, in the same folder."""
        out = str(self.root / f"sets-{shards}")
        source, corpus = str(trained or self._trained), str(self.root / "corpus.jsonl")
        quiet = Reporter(quiet=True)
        return index_set(
            source, corpus, out, shards=shards, runner=InProcess(), reporter=quiet
        ).address

    @asynccontextmanager
    async def service(self, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        """The ordinary service."""
        async with running(self.root / "bundles", **settings) as client:
            yield client

    @asynccontextmanager
    async def router(
        self,
        address: str,
        shards: FailingShards,
        *,
        name: str = "router",
        source: Folder | None = None,
        cache: Path | None = None,
        **settings: Any,
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A router over the shards of a set.

        Args:
            name: Of its own folder in that of the set.
            source: Where it reads the set; by default at the address.
            cache: Of what it downloads.
        """
        folder = Path(address) / name
        folder.mkdir(exist_ok=True)
        own = settings_for(folder, **settings)
        fixed = cast(Coordinator, Fixed(str(source or address), LogSource.of(own)))
        copies = BundleCache(cache or self.root / "cache")
        app = create_router(own, copies, fixed, make_shards=lambda _: shards)
        async with client_of(app) as client:
            yield client


class Fixed:
    """A coordinator of which routers hear the same always."""

    def __init__(self, address: str, log: LogSource | None) -> None:
        fingerprint = None if log is None else log.fingerprint
        version = address.rpartition("/")[2]
        self._snapshot = Snapshot(1, 1, version, address, log=fingerprint)

    async def follow(self, report: Report, epoch: int, wait_s: float) -> Snapshot:
        await asyncio.sleep(wait_s)
        return self._snapshot

    async def ping(self) -> None: ...

    async def leave(self, id: str) -> None: ...


class FailingShards(ReplicatedShards):
    """Shards of this process, some of which do not answer.

    Attributes:
        servers: All of them, by number.
        failing: Numbers of those.
        asked: How many calls each call of ``ask`` has made.
    """

    def __init__(self, servers: Mapping[int, ShardServer]) -> None:
        super().__init__(Metrics())
        self.servers = self._answering = servers
        self.failing: set[int] = set()
        self.asked: list[int] = []

    @classmethod
    def of(cls, address: str, cache: Path, log: LogSource | None = None) -> FailingShards:
        """Open all shards of a set; log: of live documents."""
        servers = {}
        for number in numbers_of(read_set(Folder(address))):
            servers[number] = ShardServer(number, BundleCache(cache), log)
            servers[number].load(address)
        return cls(servers)

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        self.asked.append(len(payloads))

        def answer(number: int) -> bytes | Failure:
            if number in self.failing or number not in self._answering:
                return Failure("frozen")
            [found] = self._answering[number].answers([payloads[number]], [deadline_s])
            return (
                found if isinstance(found, bytes) else Failure(f"{type(found).__name__}: {found}")
            )

        found = await asyncio.gather(*(asyncio.to_thread(answer, number) for number in payloads))
        return dict(zip(payloads, found, strict=True))

    def replace(self, other: FailingShards) -> None:
        """Answer with the shards of another one from now on."""
        self._answering = other._answering

    def close(self) -> None:
        for server in self.servers.values():
            for version in server.versions:
                server.release(version)


def numbers_of(manifest: SetManifest) -> Sequence[int]:
    """Return the shards that have documents."""
    return [number for number, shard in enumerate(manifest.shards) if shard.documents]
