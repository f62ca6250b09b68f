"""Searches of a served bundle during a swap, or during writes and their compaction.

The bundle is served with two workers while two clients search in the fast mode, 20 ms after each answer: first
undisturbed, then meanwhile. Versions are hard links to the files of one bundle, so a second one needs no disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness.lab import Lab
from benchmarks.performance.footprint import summed
from benchmarks.performance.live import percentiles
from benchmarks.performance.resample import short_queries
from benchmarks.performance.retrieval_inputs import Kept
from benchmarks.performance.servers import children, start, stop
from fullrank.bundle.manifest import MANIFEST, free_version, read_manifest
from fullrank_service.http.keys import create_key

WORKERS, CLIENTS, LIVE = 2, 2, 1000
_QUIET_S, _PAUSE_S = 10.0, 0.02


class Load:
    """Clients that search again and again; answers: (when it came, milliseconds, whether it was 200)."""

    def __init__(self, url: str, token: str, texts: Sequence[str]) -> None:
        self.url, self.texts = url, texts
        self.headers = {"Authorization": f"Bearer {token}"}
        self.answers: list[tuple[float, float, bool]] = []

    async def search(self, number: int) -> None:
        """Search until cancelled."""
        async with httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60) as client:
            for turn in range(number, 1 << 40, CLIENTS):
                began = time.monotonic()
                try:
                    body = {"query": self.texts[turn % len(self.texts)], "mode": "fast"}
                    is_good = (await client.post("/v1/search", json=body)).status_code == 200
                except httpx.HTTPError:
                    is_good = False
                now = time.monotonic()
                self.answers.append((now, 1000 * (now - began), is_good))
                await asyncio.sleep(_PAUSE_S)

    async def during(self, work: Callable[[], object]) -> dict[str, Any]:
        """Return the answers that came while a function ran in a thread."""
        began = time.monotonic()
        await asyncio.to_thread(work)
        ended = time.monotonic()
        inside = [(ms, good) for at, ms, good in self.answers if began <= at <= ended]
        return {
            "seconds": round(ended - began, 1),
            "searches": len(inside),
            "failed": sum(not good for _, good in inside),
            "p50_p99_ms": percentiles([ms for ms, _ in inside], 50, 99) if inside else None,
        }


@contextmanager
def linked(bundle: Path, root: Path, versions: int) -> Iterator[list[Path]]:
    """Make a folder of versions of one bundle, of hard links; remove it in the end."""
    shutil.rmtree(root, ignore_errors=True)
    manifest, found = read_manifest(bundle), []
    try:
        for _ in range(versions):
            folder = root / manifest.name
            version, created = free_version(
                folder, manifest.name, datetime.now(UTC), manifest.bundle_id
            )
            shutil.copytree(
                bundle,
                folder / version,
                copy_function=os.link,
                ignore=shutil.ignore_patterns(MANIFEST),
            )
            own = replace(
                manifest, version=version, created=created.isoformat(timespec="microseconds")
            )
            (folder / version / MANIFEST).write_text(own.dump(), "utf-8")
            found.append(folder / version)
        yield found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def served(kept: Kept, size: int, what: str, lab: Lab) -> dict[str, Any]:
    """Serve the bundle of a size under load, and swap or compact meanwhile."""
    bundle, texts = kept.bundle(str(size)), short_queries(kept.source(), 300, 10 * kept.seed + 2)
    keys = lab.scratch / "keys.json"
    _, token = create_key(keys, ["search", "ingest", "admin"])
    with linked(bundle, kept.out / "serving", 2 if what == "swap" else 1) as versions:
        root = versions[0].parents[1]
        settings = {
            "FULLRANK_BUNDLES": str(root), "FULLRANK_KEYS": str(keys),
            "FULLRANK_SWAP_TIMEOUT_S": "1800", "FULLRANK_CACHE_ENTRIES": "0",
        }  # fmt: skip
        began = time.monotonic()
        process, url = start("fullrank_service.process.run", settings, "/readyz", WORKERS)
        started_s = time.monotonic() - began
        client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=1800
        )

        def swap() -> None:
            body = {"version": versions[0].name}
            client.put("/v1/models/aliases/default", json=body).raise_for_status()

        def write() -> None:
            lines = islice(kept.source().documents(kept.seed + 1, 1.0), LIVE)
            content = "".join(
                json.dumps({**line, "_id": f"live-{line['_id']}"}) + "\n" for line in lines
            )
            bulk = {"Content-Type": "application/x-ndjson"}
            client.post("/v1/documents:bulk", content=content, headers=bulk).raise_for_status()

        def compact() -> None:
            command = ["bundles", "compact", str(versions[0].parent)]
            subprocess.run(
                [sys.executable, "-m", "fullrank", *command], stdout=sys.stderr, check=True
            )

        async def run() -> dict[str, Any]:
            load = Load(url, token, texts)
            clients = [asyncio.create_task(load.search(number)) for number in range(CLIENTS)]
            found = {"undisturbed": await load.during(partial(time.sleep, _QUIET_S))}
            for work in [swap] if what == "swap" else [write, compact]:
                found[work.__name__] = await load.during(work)
            for task in clients:
                task.cancel()
            return found

        try:
            found = asyncio.run(run())
            memory = summed([process.pid, *children(process.pid)])
        finally:
            stop(process)
    return {"documents": size, "started_s": round(started_s, 1), **found, "memory": memory}
