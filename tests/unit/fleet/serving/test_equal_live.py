"""Writes to a router over 1, 3 and 16 shards change its answers as they change those of the unsharded service."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.bundle import find_bundle
from fullrank_fleet.jobs.compact import compact_set, trim_log
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.documents import LogSource
from fullrank_service.documents import follow as merging
from fullrank_service.documents.compact import compact, trim
from fullrank_service.documents.sqlitelog import LogPlace
from tests.databases import NewDatabase
from tests.unit.fleet.jobs.planted import QUIET
from tests.unit.fleet.serving.routing import WORDS, FailingShards, Whole, document
from tests.unit.fleet.serving.test_equal import CUTS, all_equal, answer_of, query, request

pytestmark = pytest.mark.anyio
COUNT = 160
# Words of no document of the bundle.
NEW_WORDS = ["zebra", "yak", "quokka", "走る"]
POLL_S = 0.2
VERSION = re.compile(r"planted-\w+-\w+")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), COUNT)


@pytest.fixture(autouse=True)
def merge_small_segments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge nothing by time: until it is merged, a segment has the words of its deleted documents."""
    monkeypatch.setattr(merging, "_IDLE_S", 1e6)


class Places:
    """The sets, and a log for each and for the service."""

    def __init__(self, whole: Whole, folder: Path, new_database: NewDatabase) -> None:
        self._whole, self._file = whole, folder / "documents.sqlite"
        self._logs = {whole.cut(count): LogSource(new_database(), POLL_S) for count in CUTS}

    @asynccontextmanager
    async def clients(self, **settings: Any) -> AsyncIterator[list[httpx.AsyncClient]]:
        """The unsharded service, then the routers, over what the logs have."""
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


@pytest.fixture
def places(whole: Whole, tmp_path: Path, new_database: NewDatabase) -> Places:
    return Places(whole, tmp_path, new_database)


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


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_writes_change_answers_equally(places: Places, whole: Whole, seed: int) -> None:
    rng = random.Random(seed)
    ids = [*rng.sample(whole.ids, 25), *(f"new/{number}" for number in range(15)), "日本"]
    seq, statuses, certified = 0, [], 0
    async with places.clients() as clients:
        for _ in range(30):
            method, url, arguments = write(rng, ids)
            status, own = await written(clients, method, url, **arguments)
            statuses.append(status)
            seq = max(seq, own)
            for _ in range(3):
                status, found = await all_equal(
                    clients, "POST", "/v1/search", json=search(rng, seq)
                )
                certified += status == 200 and found["certified"]
            id = rng.choice(ids)
            await all_equal(clients, "GET", f"/v1/documents/{id}", params={"min_seq": seq})
            await all_equal(clients, "GET", f"/v1/documents/{id}/similar", params={"min_seq": seq})
    assert statuses.count(200) > 15
    assert certified > 40
    # Another process replays the log.
    async with places.clients() as clients:
        for _ in range(15):
            await all_equal(clients, "POST", "/v1/search", json=search(rng, seq))
        for id in ids:
            await all_equal(clients, "GET", f"/v1/documents/{id}")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_pages_under_writes_have_what_is_not_written_once(
    places: Places, whole: Whole, seed: int
) -> None:
    """Equal to each other; but for documents written meanwhile, the list before without deleted ones."""
    rng = random.Random(seed)
    ids = [*rng.sample(whole.ids, 25), *(f"new/{number}" for number in range(15))]
    pages = compared = 0
    async with places.clients() as clients:
        for _ in range(4):
            for _ in range(5):
                method, url, arguments = write(rng, ids)
                await written(clients, method, url, **arguments)
            _, seq = await written(clients, "DELETE", "/v1/documents/nowhere")
            asked: dict[str, Any] = {"query": query(rng), "explain": True, "min_seq": seq}
            asked["query"] += " " + rng.choice([*NEW_WORDS, "zebr", "quo"])
            if rng.random() < 0.4:
                asked |= {"filter": {"stars": {"gte": 2}}, "facets": ["brand"]}
            expected: list[dict[str, Any]] = []
            for offset in (0, 100):
                page = {**asked, "limit": 100, "offset": offset, "mode": "exact"}
                status, found = await all_equal(clients, "POST", "/v1/search", json=page)
                assert status == 200
                expected += found["hits"]
            asked["limit"] = rng.choice([5, 23])
            cursors: list[str | None] = ["*"] * len(clients)
            hits: list[dict[str, Any]] = []
            moved = set[str]()
            while cursors[0] is not None:
                replies = [
                    await client.post("/v1/search", json=asked | {"cursor": cursor})
                    for client, cursor in zip(clients, cursors, strict=True)
                ]
                found, *others = [answer_of(reply)[1] for reply in replies]
                assert all(other == found for other in others), asked
                hits += found["hits"]
                cursors = [reply.json()["cursor"] for reply in replies]
                pages += 1
                for _ in range(2):
                    method, url, arguments = write(rng, ids)
                    if method != "DELETE" and "content" not in arguments:
                        seq = max(seq, (await written(clients, method, url, **arguments))[1])
                        moved.add(url.removeprefix("/v1/documents/"))
                read = {hit["id"] for hit in hits}
                left = [hit["id"] for hit in expected if hit["id"] not in read]
                if left and rng.random() < 0.2:
                    gone = rng.choice(left)
                    seq = max(seq, (await written(clients, "DELETE", f"/v1/documents/{gone}"))[1])
                    expected = [hit for hit in expected if hit["id"] != gone]
                asked["min_seq"] = max(asked["min_seq"], seq)
            kept = [hit for hit in hits if hit["id"] not in moved]
            assert kept == [hit for hit in expected if hit["id"] not in moved]
            compared += len(kept)
    assert pages > 8
    assert compared > 20


async def written(
    clients: list[httpx.AsyncClient], method: str, url: str, **arguments: Any
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
