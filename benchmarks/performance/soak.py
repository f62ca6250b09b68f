"""Run the service for half an hour under searches, writes, deletions, swaps and Redis restarts.

    python -m benchmarks.performance.soak [--minutes 30] [--workers 2] [--out out/soak] [--json]

The real server serves two versions of one bundle (BM25 and a short fielded model, on the English pages of tldr). At the
same time:

searches   4 clients search for words of the pages, with short pauses; three in ten with a filter and a facet
writes     4 writers own 500 document ids each and send bulk requests of 50 lines, single puts and single deletions
           with idempotency keys. A write without an answer is repeated with its key until it has one, and one in ten
           is repeated although it has one. After each write, another connection reads one of its documents with
           ``min_seq``
swaps      every 10 s to the other version
Redis      restarted every 45 s, by turns after SIGKILL and after 2 s of SIGSTOP

At the end every acknowledged document must have its last written fields and no deleted one may exist. Many connections
check that, and check it again after a restart of the service. Memory (anonymous pages) and
open files of every worker are sampled every 5 s. The slope is that of a line through the samples after the first fifth
of the time, with its standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.report import data_folder, machine
from benchmarks.performance.servers import Server, serving
from fullrank_service.http.keys import create_key


class Redis:
    """A Redis on a Unix socket that can be killed, stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start a new process on the same socket."""
        self.socket.unlink(missing_ok=True)
        found = shutil.which("redis-server")
        if found is None:
            raise FileNotFoundError("redis-server is not on PATH; install the package redis-server")
        options = ["--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self._process = subprocess.Popen(
            [
                found,
                *options,
                "--dir",
                str(self._folder),
                "--maxmemory",
                "64mb",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """Suspend the process, so that clients wait."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_in(folder: Path) -> Iterator[Redis]:
    """Run a Redis in a folder; kill it at the end."""
    redis = Redis(folder)
    try:
        yield redis
    finally:
        redis.kill()


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
            tasks.create_task(self.sample())

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

    async def sample(self) -> None:
        """Sample memory and open files of every worker."""
        began = time.monotonic()
        while not self.is_over:
            now = time.monotonic() - began
            self.seen.samples.append(
                {"t": round(now, 1), **{str(w): process_usage(w) for w in self.server.workers}}
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


_WARM_UP_SHARE = 0.2  # of the samples, not part of the slopes


def process_usage(process: int) -> dict[str, float]:
    """Read memory in MB, open files and threads of a process."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    kilobytes = {
        line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:] if ":" in line
    }
    return {
        "anonymous_mb": kilobytes["Anonymous"] / 1024,
        "files": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
    }


def slope(times_s: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Fit a line through the samples after the warm-up.

    Args:
        times_s: seconds since the start, one per sample.
        values: one per sample.

    Returns:
        The mean, the slope per hour, its standard error, and the means of the first and last third.
    """
    first = int(len(times_s) * _WARM_UP_SHARE)
    t, y = np.asarray(times_s[first:]) / 3600, np.asarray(values[first:])
    if len(t) < 4:
        return {"mean": float(y.mean()), "per_hour": float("nan"), "error": float("nan")}
    centred = t - t.mean()
    rise = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - rise * centred
    error = float(np.sqrt(rest @ rest / (len(t) - 2) / (centred @ centred)))
    third = len(y) // 3
    return {
        "mean": round(float(y.mean()), 2),
        "per_hour": round(rise, 2),
        "error": round(error, 2),
        "first_third": round(float(y[:third].mean()), 2),
        "last_third": round(float(y[-third:].mean()), 2),
        "largest": round(float(y.max()), 2),
    }


def report(
    seen: Observations,
    documents: int,
    minutes: float,
    workers: Sequence[int],
    out: Path,
    log_bytes: int,
) -> dict[str, Any]:
    """Return the figures; write them with the samples as soak.json."""
    times = [sample["t"] for sample in seen.samples]
    series = {
        what: {str(w): [sample[str(w)][what] for sample in seen.samples] for w in workers}
        for what in ("anonymous_mb", "files", "threads")
    }
    found = {
        "minutes": minutes,
        "workers": len(workers),
        "machine": machine(("fastapi", "numpy", "uvicorn")),
        "counts": dict(sorted(seen.counts.items())),
        "wrong": seen.wrong,
        "documents": documents,
        "log_bytes": log_bytes,
        "slopes": {
            what: {f"worker {i}": slope(times, values) for i, values in enumerate(lines.values())}
            for what, lines in series.items()
        },
    }
    with (out / "soak.json").open("w", encoding="utf-8") as file:
        json.dump({**found, "samples": seen.samples}, file, indent=1)
    return found


def build(out: Path) -> list[str]:
    """Train two versions of one bundle name: BM25 and a short fielded model."""
    from fullrank.progress import Reporter
    from fullrank_trainer.train import train

    collection, quiet = data_folder() / "tldr" / "en", Reporter(quiet=True)
    short = ["train.epochs=1", "model.dimension=64", "train.valid_queries=100"]
    bm25 = train(collection, out, "soak", recipe="bm25", reporter=quiet)
    fielded = train(collection, out, "soak", recipe="fielded", overrides=short, reporter=quiet)
    return [bm25.path.name, fielded.path.name]


def read_pages(number: int = 2000) -> list[dict[str, Any]]:
    """Draw documents in a fixed order."""
    with gzip.open(data_folder() / "tldr" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return random.Random(1).sample(documents, min(number, len(documents)))


def environment(root: Path, redis: Redis, keys: Path) -> dict[str, str]:
    """Return the settings of the server."""
    return {
        "FULLRANK_BUNDLES": str(root),
        "FULLRANK_KEYS": str(keys),
        "FULLRANK_REDIS_URL": f"unix://{redis.socket}",
        "FULLRANK_LOG_LEVEL": "error",
        # Small caches fill within the warm-up; a cache that fills for an hour looks like a leak.
        "FULLRANK_CACHE_ENTRIES": "512",
        "FULLRANK_FILTER_CACHE_MB": "4",
    }


def soak(minutes: float, workers: int, out: Path) -> dict[str, Any]:
    """Run, verify, restart and verify again; write soak.json."""
    out.mkdir(parents=True, exist_ok=True)
    usable = sorted(os.sched_getaffinity(0))
    cores = [usable[i % len(usable)] for i in range(workers)]
    with tempfile.TemporaryDirectory() as folder, redis_in(Path(folder)) as redis:
        root = Path(folder) / "bundles"
        versions = build(root)
        keys = Path(folder) / "keys.json"
        _, admin = create_key(keys, ["search", "ingest", "admin"])
        settings = environment(root, redis, keys)
        with serving("fullrank_service.process.run", settings, "/readyz", cores) as server:
            run = Soak(server, admin, versions, read_pages())
            asyncio.run(run.run(60 * minutes, redis))
            asyncio.run(run.verify(server, "at the end"))
        with serving("fullrank_service.process.run", settings, "/readyz", cores) as again:
            asyncio.run(run.verify(again, "after a restart"))
        log_bytes = sum(file.stat().st_size for file in root.glob("documents.sqlite*"))
    return report(run.seen, len(run.state), minutes, server.workers, out, log_bytes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a promise was violated."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(arguments)
    found = soak(given.minutes, given.workers, given.out)
    print(json.dumps(found, indent=None if given.json else 1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
