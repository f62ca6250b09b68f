"""The load of the soak test: searches, writes, deletions, swaps and Redis restarts at the same time."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.performance.redis_server import Redis
from benchmarks.performance.servers import Server
from benchmarks.performance.soak_report import process_usage

SAMPLE_S = 5.0
SWAP_S = 10.0
REDIS_S = 45.0
WRITERS, IDS, BULK = 4, 500, 50
SEARCHERS = 4


@dataclass
class Observations:
    """Counts, mistakes and samples of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def mistake(self, what: str) -> None:
        """Record a violated promise."""
        self.wrong.append(what)
        print(f"WRONG: {what}", file=sys.stderr, flush=True)


class Soak:
    """The load of one run, and the state that the service must hold afterwards."""

    def __init__(
        self, server: Server, admin: str, versions: Sequence[str], pages: Sequence[dict[str, Any]]
    ) -> None:
        self.server, self.versions, self.pages = server, versions, pages
        self.admin = {"Authorization": f"Bearer {admin}"}
        self.seen = Observations()
        # Fields of each id after its last acknowledged write; None after a deletion.
        self.state: dict[str, dict[str, Any] | None] = {}
        self.end = 0.0

    def client(self, **more: Any) -> httpx.AsyncClient:
        """Return a client with its own connections."""
        return httpx.AsyncClient(base_url=self.server.url, timeout=30, headers=self.admin, **more)

    @property
    def is_over(self) -> bool:
        """Whether the time of the load is up."""
        return time.monotonic() > self.end

    async def run(self, seconds: float, redis: Redis) -> None:
        """Run all clients, swaps, restarts and samples together."""
        self.end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for i in range(SEARCHERS):
                tasks.create_task(self.search(i))
            for i in range(WRITERS):
                tasks.create_task(self.write(i))
            tasks.create_task(self.swap())
            tasks.create_task(self.restart(redis))
            tasks.create_task(self.sample(seconds))

    # -- load ---------------------------------------------------------------------------------

    async def search(self, number: int) -> None:
        """Search for words of the pages, some with a filter and a facet."""
        draw = random.Random(number)
        async with self.client() as client:
            while not self.is_over:
                page = draw.choice(self.pages)
                words = f"{page['title']} {page['text']}".split()
                body: dict[str, Any] = {
                    "query": " ".join(draw.sample(words, min(4, len(words)))),
                    "limit": 5,
                }
                if draw.random() < 0.3:
                    body |= {"facets": ["soak"], "filter": {"soak": {"exists": True}}}
                try:
                    response = await client.post("/v1/search", json=body)
                except httpx.HTTPError as error:
                    self.seen.counts[f"search {type(error).__name__}"] += 1
                    continue
                # Before the first write no document has the field, so the filter is refused.
                early = response.status_code == 422 and "soak" in response.text
                self.seen.counts[f"search {'early' if early else response.status_code}"] += 1
                if response.status_code == 200:
                    ids = [hit["id"] for hit in response.json()["hits"]]
                    if len(set(ids)) != len(ids):
                        self.seen.mistake(f"an id twice in one answer: {ids}")
                await asyncio.sleep(0.01)

    async def write(self, number: int) -> None:
        """Write to the ids of one writer and read one of them back."""
        draw = random.Random(1000 + number)
        ids = [f"soak/{number}/{i}" for i in range(IDS)]
        round_ = 0
        async with self.client() as client:
            while not self.is_over:
                round_ += 1
                what = draw.random()
                chosen = draw.sample(ids, BULK if what < 0.3 else 1)
                changes = {
                    id: None if draw.random() < 0.15 else self._document(draw, round_)
                    for id in chosen
                }
                seq = await self._send(client, draw, changes)
                self.state.update(changes)
                await self._read_back(draw.choice(chosen), seq)
                await asyncio.sleep(0.1)

    def _document(self, draw: random.Random, round_: int) -> dict[str, Any]:
        page = draw.choice(self.pages)
        unseen = secrets.token_hex(4)
        return {
            "title": f"{page['title']} {unseen}",
            "text": f"{page['text']} {unseen}",
            "soak": round_ % 7,
        }

    async def _send(
        self, client: httpx.AsyncClient, draw: random.Random, changes: dict[str, Any]
    ) -> int:
        """Send until the write is acknowledged; return its sequence number."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        answers: list[tuple[bytes, str]] = []
        while not answers or (len(answers) == 1 and draw.random() < 0.1):
            try:
                response = await self._once(client, headers, changes)
            except httpx.HTTPError as error:
                self.seen.counts[f"write {type(error).__name__}"] += 1
                continue
            self.seen.counts[f"write {response.status_code}"] += 1
            if response.status_code == 200:
                answers.append((response.content, response.headers["X-Seq"]))
            else:
                await asyncio.sleep(0.2)
        if len(set(answers)) != 1:
            self.seen.mistake(f"different answers for one idempotency key: {answers}")
        self.seen.counts["acknowledged"] += len(changes)
        return int(answers[0][1])

    async def _once(
        self, client: httpx.AsyncClient, headers: dict[str, str], changes: dict[str, Any]
    ) -> httpx.Response:
        if len(changes) > 1:
            lines = [
                {"_id": id, "_delete": True} if fields is None else {"_id": id, **fields}
                for id, fields in changes.items()
            ]
            return await client.post(
                "/v1/documents:bulk",
                content="".join(json.dumps(line) + "\n" for line in lines),
                headers={**headers, "Content-Type": "application/x-ndjson"},
            )
        [(id, fields)] = changes.items()
        if fields is None:
            return await client.delete(f"/v1/documents/{id}", headers=headers)
        return await client.put(f"/v1/documents/{id}", json=fields, headers=headers)

    async def _read_back(self, id: str, seq: int) -> None:
        try:
            async with self.client() as client:
                response = await client.get(f"/v1/documents/{id}", params={"min_seq": seq})
        except httpx.HTTPError as error:
            self.seen.counts[f"read {type(error).__name__}"] += 1
            return
        self.seen.counts[f"read {response.status_code}"] += 1
        if response.status_code in (200, 404):
            self.compare(id, response)

    def compare(self, id: str, response: httpx.Response) -> None:
        """Compare a document with its last acknowledged write."""
        found = response.json()["fields"] if response.status_code == 200 else None
        if found != self.state.get(id):
            self.seen.mistake(f"{id} is {found}, but {self.state.get(id)} was acknowledged")

    async def swap(self) -> None:
        """Swap to the other version every SWAP_S seconds."""
        turn = 0
        async with self.client() as client:
            while not self.is_over:
                await asyncio.sleep(SWAP_S)
                turn += 1
                body = {"version": self.versions[turn % 2]}
                try:
                    response = await client.put("/v1/models/aliases/default", json=body)
                    self.seen.counts[f"swap {response.status_code}"] += 1
                    if response.status_code != 200:
                        print(f"swap: {response.text}", file=sys.stderr, flush=True)
                except httpx.HTTPError as error:
                    self.seen.counts[f"swap {type(error).__name__}"] += 1

    async def restart(self, redis: Redis) -> None:
        """Restart Redis every REDIS_S seconds, by turns after SIGKILL and after SIGSTOP."""
        turn = 0
        while not self.is_over:
            await asyncio.sleep(REDIS_S)
            turn += 1
            if turn % 2:
                redis.kill()
                await asyncio.sleep(2)
                redis.start()
            else:
                redis.stop()
                await asyncio.sleep(2)
                redis.kill()
                redis.start()
            self.seen.counts["redis restarts"] += 1

    # -- measurements ---------------------------------------------------------------------------

    async def sample(self, seconds: float) -> None:
        """Sample memory and open files of every worker."""
        began = time.monotonic()
        while not self.is_over:
            now = time.monotonic() - began
            self.seen.samples.append(
                {"t": round(now, 1), **{str(w): process_usage(w) for w in self.server.workers}}
            )
            if len(self.seen.samples) % 12 == 0:
                memory = {w: round(process_usage(w)["anonymous_mb"]) for w in self.server.workers}
                print(
                    f"{now / 60:5.1f} of {seconds / 60:g} min  {memory} MB  {dict(self.seen.counts)}",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(SAMPLE_S)

    async def verify(self, server: Server, label: str) -> None:
        """Check every id twice, with a new connection for every 50 ids."""
        self.server = server
        for _ in range(2):
            ids = sorted(self.state)
            for start in range(0, len(ids), 50):
                async with self.client() as client:
                    for id in ids[start : start + 50]:
                        response = await client.get(f"/v1/documents/{id}")
                        if response.status_code not in (200, 404):
                            self.seen.mistake(f"{label}: {id} answered {response.status_code}")
                            continue
                        self.compare(id, response)
                        self.seen.counts[f"verified {label}"] += 1
