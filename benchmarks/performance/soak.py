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
check that, and check it again after a restart of the service. Memory (anonymous pages, and proportional set size) and
open files of every worker are sampled every 5 s. The slope is that of a line through the samples after the first fifth
of the time, with its standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import random
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.report import data_folder
from benchmarks.performance.redis_server import Redis, redis_in
from benchmarks.performance.servers import serving
from benchmarks.performance.soak_load import Soak
from benchmarks.performance.soak_report import report


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


def environment(root: Path, redis: Redis, admin: str) -> dict[str, str]:
    """Return the settings of the server; write its admin key next to the bundles."""
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
        # Small caches fill within the warm-up; a cache that fills for an hour looks like a leak.
        "FULLRANK_CACHE_ENTRIES": "512",
        "FULLRANK_FILTER_CACHE_MB": "4",
    }


def soak(minutes: float, workers: int, out: Path) -> dict[str, Any]:
    """Run, verify, restart and verify again; write soak.json and soak.svg."""
    out.mkdir(parents=True, exist_ok=True)
    admin = f"fr_soak_{secrets.token_urlsafe(32)}"
    cores = [
        sorted(os.sched_getaffinity(0))[i % len(os.sched_getaffinity(0))] for i in range(workers)
    ]
    with tempfile.TemporaryDirectory() as folder, redis_in(Path(folder)) as redis:
        root = Path(folder) / "bundles"
        versions = build(root)
        settings = environment(root, redis, admin)
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
