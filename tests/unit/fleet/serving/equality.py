"""One corpus behind an ordinary service and behind routers over 1, 3 and 16 shards, and random requests to all."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from fullrank.bundle import find_bundle
from fullrank.models.contract import Model
from fullrank.models.linear import LinearModel
from fullrank.progress import Reporter
from fullrank.retrieval import Floor
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.documents import Document
from fullrank_fleet.jobs.compact import compact_set, trim_log
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.app import create_router
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.shard import ShardServer
from fullrank_fleet.sets.manifest import SetManifest, read_set
from fullrank_service.base.metrics import Metrics
from fullrank_service.documents import follow
from fullrank_service.documents.compact import compact, trim
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.models.workers import Report
from fullrank_trainer.indexing import index
from tests.api.support import Client, client_of, running, settings_for
from tests.bundles import CORPUS_WORDS, make_bundle
from tests.databases import NewDatabase
from tests.unit.fleet.jobs.planted import QUIET

WORDS = [*CORPUS_WORDS, "rename", "delete", "archive", "unpack"]
CUTS = (1, 3, 16)
BRANDS = ["acme", "zenith", "apex", "日本", ""]
# Words of no document of the bundle.
NEW_WORDS = ["zebra", "yak", "quokka", "走る"]
POLL_S = 0.2
VERSION = re.compile(r"planted-\w+-\w+")
PATHS = ["a", "a > b", "a > b > c", "a > d", "e > b", "e!"]
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
    if rng.random() < 0.6:
        fields["kind"] = rng.choice([*PATHS, rng.sample(PATHS, 2)])
    if rng.random() < 0.6:
        fields["shop"] = {"lat": rng.randint(-90, 90), "lon": rng.randint(-180, 180)}
    if number == 7:
        fields |= {"rare": "only here", "alone": 5, "nested": {"a": 1}}
    if number % 50 == 0:
        fields["nothing"] = None
    return fields


class Whole:
    """A bundle, and the same documents as sets.

    Args:
        floor: What a document must reach to be found; None: every document is found.
        further: Returns more fields of a document, given its number.
        make_stage: Returns the second stage of the models, given the documents; None: they have none.
        first: Number of the first document.
    """

    def __init__(
        self,
        root: Path,
        count: int,
        floor: Floor | None = FLOOR,
        further: Callable[[int], Mapping[str, Any]] = lambda _: {},
        make_stage: Callable[[Sequence[Document]], SecondStage] | None = None,
        wrap: Callable[[LinearModel], Model] = lambda model: model,
        name: str = "planted",
        first: int = 0,
    ) -> None:
        self.root, self.name = root, name
        lines = [{**document(number), **further(number)} for number in range(first, first + count)]
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
            self.name,
            self._documents,
            n_dense=6,
            floor=self._floor,
            seed=seed,
            second_stage=stage,
            wrap=self._wrap,
        )
        trained = folder / self.name / version
        corpus, out = self.root / "corpus.jsonl", self.root / "bundles"
        self.versions.append(index(trained, corpus, out, reporter=Reporter(quiet=True)).path.name)
        return trained

    def cut(self, shards: int, trained: Path | None = None) -> str:
        """Return the address of the same documents in so many shards."""
        out = str(self.root / f"sets-{shards}")
        source, corpus = str(trained or self._trained), str(self.root / "corpus.jsonl")
        quiet = Reporter(quiet=True)
        return index_set(
            source, corpus, out, shards=shards, runner=InProcess(), reporter=quiet
        ).address

    @asynccontextmanager
    async def service(self, **settings: Any) -> AsyncIterator[Client]:
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
    ) -> AsyncIterator[Client]:
        """A router over the shards of a set that it reads at ``source``, with a folder of its own."""
        folder = Path(address) / name
        folder.mkdir(exist_ok=True)
        own = settings_for(folder, **settings)
        fixed = cast(Coordinator, Fixed(str(source or address), LogSource.of(own)))
        copies = BundleCache(cache or self.root / "cache")
        app = create_router(own, copies, fixed, make_shards=lambda _: shards)
        async with client_of(app) as client:
            yield client


class Fixed:
    """A coordinator that gives routers the same snapshot every time."""

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
    """Shards of this process, some of which do not answer; asked: how many calls each call of ``ask`` has made."""

    def __init__(self, servers: Mapping[int, ShardServer]) -> None:
        super().__init__(Metrics())
        self.servers = self._answering = servers
        self.failing: set[int] = set()
        self.asked: list[int] = []

    @classmethod
    def of(cls, address: str, cache: Path, log: LogSource | None = None) -> FailingShards:
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
        self._answering = other._answering

    def close(self) -> None:
        for server in self.servers.values():
            for version in server.versions:
                server.release(version)


def numbers_of(manifest: SetManifest) -> Sequence[int]:
    return [number for number, shard in enumerate(manifest.shards) if shard.documents]


@asynccontextmanager
async def sides(
    whole: Whole, sets: Mapping[str, FailingShards], logs: Path | None = None, **settings: Any
) -> AsyncIterator[list[Client]]:
    """The unsharded service, then a router over each set; logs: folder for a log of events of each."""

    def own() -> dict[str, Any]:
        return settings if logs is None else {**settings, "events_folder": logs / str(len(found))}

    found = list[Client]()
    async with AsyncExitStack() as stack:
        found.append(await stack.enter_async_context(whole.service(**own())))
        for address, shards in sets.items():
            router = whole.router(address, shards, **own())
            found.append(await stack.enter_async_context(router))
        yield found


@contextmanager
def opened(whole: Whole) -> Iterator[dict[str, FailingShards]]:
    """The sets of all cuts, by address, with their shards open."""
    cache = whole.root / "cache"
    found = {address: FailingShards.of(address, cache) for address in map(whole.cut, CUTS)}
    try:
        yield found
    finally:
        for own in found.values():
            own.close()


def query(rng: random.Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(1, 4))
    if rng.random() < 0.3:
        words[-1] = words[-1][: rng.randint(1, 4)]
    if rng.random() < 0.1:
        words.append(rng.choice(["xyzzy", "fiels", "日本"]))
    return " ".join(words)


def condition(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and rng.random() < 0.3:
        inner = [condition(rng, depth + 1) for _ in range(rng.randint(1, 3))]
        return rng.choice([{"and": inner}, {"or": inner}, {"not": inner[0]}])
    return rng.choice(
        [
            {"brand": rng.choice([*BRANDS, "unknown"])},
            {"brand": {"in": rng.sample(BRANDS, 2)}},
            {"stars": {"gte": rng.randint(-2, 8)}},
            {"sizes": rng.randint(0, 16)},
            {"mixed": rng.choice([1, "1", True])},
            {"published": {"lt": f"2026-{rng.randint(1, 12):02}"}},
            {"is_new": {"exists": rng.random() < 0.5}},
            {"rare": "only here"},
            {"alone": {"gt": 1}},
            {"nothing": {"exists": False}},
            {"kind": {"under": rng.choice(["a", "a > b", "e"])}},
            {"shop": {"within": {"lat": 10, "lon": rng.randint(-180, 180), "km": 6000}}},
        ]
    )


def order(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = rng.randrange(6)
    if kind == 0:
        names = ["stars", "published", "is_new", "sizes", "note", "mixed", "alone", "shop"]
        found["sort"] = [
            {"field": name, "order": rng.choice(["asc", "desc"])}
            | ({"near": {"lat": 50, "lon": 8}} if name == "shop" else {})
            for name in rng.sample(names, 2)
        ]
    elif kind == 1:
        found["boost"] = [
            {"field": "stars", "log": True, "weight": rng.choice([0.3, -2, 50])},
            {"field": "published", "decay": {"origin": "2026-06-01T00:00:00Z", "scale": "30d"}},
        ]
    if rng.random() < 0.25:
        field = rng.choice(["brand", "sizes", "is_new", "mixed", "rare"])
        found["group_by"] = {"field": field, "limit": rng.randint(1, 3)}
    if rng.random() < 0.15 and kind != 0:
        found["diversity"] = rng.choice([0.2, 0.7, 1.0])
    return found


def request(rng: random.Random) -> dict[str, Any]:
    """A random search, now and then one that does not fit the fields."""
    found: dict[str, Any] = {"query": query(rng), "limit": rng.randint(1, 30), **order(rng)}
    if rng.random() < 0.4:
        found["offset"] = rng.choice([1, 7, 50, 300, 390])
    if rng.random() < 0.5:
        found["filter"] = condition(rng)
    if rng.random() < 0.3:
        found["facets"] = rng.sample(["brand", "stars", "sizes", "mixed", "note", "rare"], 3)
        found["facet_limit"] = rng.randint(1, 8)
        if rng.random() < 0.5:
            found["facets"].append("kind")
            found["facet_under"] = {"kind": rng.choice(["", "a"])}
    if rng.random() < 0.2:
        found["facet_ranges"] = {
            "stars": [{"to": 2}, {"from": 2, "to": 5.5}, {"from": 1}],
            "note": [{"from": "2026-01-01T00:00:00Z"}],
        }
    if rng.random() < 0.2:
        found["min_score"] = rng.choice([-1.0, 0.5, 2.0, 4.0, 99.0])
    if rng.random() < 0.3:
        found["explain"] = True
    if rng.random() < 0.3:
        found["highlight"] = {"fields": ["title", "text"], "words": rng.randint(3, 9)}
    if rng.random() < 0.2:
        found["fields"] = rng.sample(["title", "stars", "nowhere"], 2)
    if rng.random() < 0.2:
        found["prefix"] = "none"
    # Few documents have all words, so the deepest pages would be empty.
    if rng.random() < 0.4 and found.get("offset", 0) < 300:
        found["match"] = rng.choice(["all", "auto"])
    if rng.random() < 0.3:
        found["facet_mode"] = "disjunctive"
    if rng.random() < 0.1:
        found |= rng.choice([{"query": ""}, {"limit": 0}])
    if rng.random() < 0.08:
        found |= rng.choice(
            [
                {"filter": {"nowhere": 1}},
                {"filter": {"brand": 5}},
                {"filter": {"nested": 1}},
                {"sort": [{"field": "brand"}], "boost": [], "diversity": 0},
                {"facets": ["nowhere"]},
                {"facet_ranges": {"brand": [{"from": 1}]}},
                {"facet_ranges": {"note": [{"from": 1}]}},
                {"highlight": {"fields": ["stars"]}},
                {"group_by": {"field": "nested"}},
            ]
        )
    return found


def answer_of(response: httpx.Response) -> tuple[int, Any]:
    """Return what must be equal: all but times, random ids and names of versions."""
    text = response.text.replace(response.headers.get("x-model-version", "\0"), "VERSION")
    found = json.loads(text)
    for part in [found, *found.get("answers", ())]:
        for name in ("query_id", "took_ms", "request_id", "cursor"):
            part.pop(name, None)
    return response.status_code, found


async def all_equal(
    clients: list[Client], method: str, url: str, **arguments: Any
) -> tuple[int, Any]:
    """Send a request to all, and return the answer that they agree on."""
    expected, *others = [
        answer_of(await client.request(method, url, **arguments)) for client in clients
    ]
    for cut, found in zip(CUTS, others, strict=True):
        assert found == expected, (cut, url, arguments)
    return expected


async def all_pages(clients: list[Client], body: dict[str, Any]) -> int:
    """Read a search page by page from all, which must agree; return the number of pages."""
    cursors: list[str | None] = ["*"] * len(clients)
    pages = 0
    while cursors[0] is not None:
        replies = [
            await client.post("/v1/search", json={**body, "cursor": cursor})
            for client, cursor in zip(clients, cursors, strict=True)
        ]
        cursors = [reply.json()["cursor"] for reply in replies]
        answers = [(answer_of(reply), reply.json()["cursor"] is None) for reply in replies]
        assert all(answer == answers[0] for answer in answers)
        pages += 1
    return pages


class Places:
    """The sets, and a log for each and for the service."""

    def __init__(self, whole: Whole, folder: Path, new_database: NewDatabase) -> None:
        self._whole, self._file = whole, folder / "documents.sqlite"
        self._logs = {whole.cut(count): LogSource(new_database(), POLL_S) for count in CUTS}

    @asynccontextmanager
    async def clients(self, **settings: Any) -> AsyncIterator[list[Client]]:
        common: dict[str, Any] = {
            "documents_poll_ms": int(POLL_S * 1e3),
            "min_seq_wait_ms": 60_000,
            **settings,
        }
        async with AsyncExitStack() as stack:
            service = self._whole.service(documents=self._file, **common)
            found = [await stack.enter_async_context(service)]
            for address, log in self._logs.items():
                shards = FailingShards.of(address, self._whole.root / "cache", log)
                stack.callback(shards.close)
                router = self._whole.router(address, shards, documents_url=log.address, **common)
                found.append(await stack.enter_async_context(router))
            yield found

    def compact(self) -> None:
        """Compact the bundle and every set; the next clients serve what that makes."""
        bundle = find_bundle(self._whole.root / "bundles", "planted")
        compact(bundle, LogPlace.of_file(self._file))
        self._logs = {
            compact_set(address, log.place(), runner=InProcess(), reporter=QUIET).address: log
            for address, log in self._logs.items()
        }

    def forget_earlier(self) -> list[int]:
        """Delete all other versions; return how many operations are removed from each log then."""
        bundles = self._whole.root / "bundles"
        versions = [find_bundle(bundles, "planted"), *map(Path, self._logs)]
        for newest in versions:
            for version in newest.parent.iterdir():
                if version != newest:
                    shutil.rmtree(version)
        removed = [trim(bundles, "planted", LogPlace.of_file(self._file), -1)]
        for address, log in self._logs.items():
            root = Folder(str(Path(address).parents[1]))
            removed.append(trim_log(root, "planted", log.place(), -1))
        return removed


def body(rng: random.Random) -> dict[str, Any]:
    """The fields of a document, now and then with new words, new fields, or what a field does not take."""
    fields = document(rng.randrange(10_000))
    del fields["_id"]
    if rng.random() < 0.4:
        fields["text"] += " " + " ".join(rng.choices(NEW_WORDS, k=2))
    if rng.random() < 0.3:
        fields["color"] = rng.choice(["red", "blue", 7, ["red", 7]])
    if rng.random() < 0.2:
        fields["seen"] = rng.choice(["2026-03-01", "2026-04-01T12:00:00Z"])
    if rng.random() < 0.1:
        fields["shape"] = {"sides": 3}
    if rng.random() < 0.1:
        fields |= rng.choice(
            [{"stars": "many"}, {"brand": "x" * 300}, {"title": 5}, {"title": "", "text": ""}]
        )
    return fields


def write(rng: random.Random, ids: list[str]) -> tuple[str, str, dict[str, Any]]:
    """A random write: method, address, and arguments of the request."""
    id = rng.choice(ids)
    kind = rng.random()
    if kind < 0.45:
        return "PUT", f"/v1/documents/{id}", {"json": body(rng)}
    if kind < 0.65:
        changes = {"title": rng.choice(WORDS + NEW_WORDS), "stars": rng.choice([1, 5, None])}
        return "PATCH", f"/v1/documents/{id}", {"json": changes}
    if kind < 0.85:
        return "DELETE", f"/v1/documents/{id}", {}
    lines = [
        {"_id": rng.choice(ids), "_delete": True}
        if rng.random() < 0.3
        else {"_id": rng.choice(ids), **body(rng)}
        for _ in range(rng.randint(1, 12))
    ]
    content = "\n".join(map(json.dumps, lines))
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(rng.random())}
    return "POST", "/v1/documents:bulk", {"content": content, "headers": headers}


def search(rng: random.Random, seq: int) -> dict[str, Any]:
    found = {**request(rng), "min_seq": seq}
    if rng.random() < 0.4:
        found["query"] += " " + rng.choice([*NEW_WORDS, "zebr", "yac"])
    if rng.random() < 0.3:
        found["filter"] = rng.choice(
            [{"color": "red"}, {"color": {"gte": 2}}, {"shape": 1}, {"seen": {"gt": "2026-03-15"}}]
        )
    if rng.random() < 0.2:
        found["facets"] = ["color", "brand"]
    if rng.random() < 0.1:
        found = {"query": found["query"], "sort": [{"field": "seen"}], "min_seq": seq}
    return found


async def written(
    clients: list[Client], method: str, url: str, **arguments: Any
) -> tuple[int, int]:
    """Send a write to all, which must answer the same; return the status and the number of the write."""
    replies = [await client.request(method, url, **arguments) for client in clients]
    if replies[0].headers["content-type"] == "application/x-ndjson":
        answers = [(reply.status_code, VERSION.sub("", reply.text)) for reply in replies]
    else:
        answers = [answer_of(reply) for reply in replies]
    for answer in answers[1:]:
        assert answer == answers[0], arguments
    [seq] = {reply.headers.get("x-seq", "0") for reply in replies}
    return replies[0].status_code, int(seq)


@pytest.fixture(autouse=True)
def merge_small_segments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge nothing by time: until it is merged, a segment has the words of its deleted documents."""
    monkeypatch.setattr(follow, "_IDLE_S", 1e6)
