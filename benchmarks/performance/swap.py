"""Exact answers and hot swaps over HTTP, on debian's 63,435 package descriptions.

    python -m benchmarks.performance.swap [--json] [--queries 200] [--swaps 50] [--workers 2] [--epochs 1]

Trains BM25 and a short fielded model through the trainer, serves both with the real server on the
loopback, then measures two things:

exactness  For each query and model, the answer over HTTP is compared with a dense brute force: u·v + s·t + b for
           every document, in float64 by numpy from the arrays of the bundle, sorted by score and then id, without
           retrieval code. "equal" means the same documents in the same order with scores within 1e-9.
swaps      Clients search without pause while the default model of all workers is swapped back and forth. A
           request fails if its status is not 200. An answer is mixed if its hits differ from those of the model
           that it names, or if body and headers differ. It is stale if it was requested after a swap was
           acknowledged and comes from an older generation.

There is no peer; the important figures are zeros.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.report import data_folder, machine, show
from fullrank.bundle import Bundle, open_bundle
from fullrank_service.auth.keys import create_key

DEPTH = 10
TOLERANCE = 1e-9


def build(collection: Path, out: Path, epochs: int) -> list[Path]:
    """Train two bundles of the collection: BM25, and a short fielded model."""
    from fullrank.progress import Reporter
    from fullrank_trainer.train import train

    quiet = Reporter(quiet=True)
    short = [f"train.epochs={epochs}", "model.dimension=64", "train.valid_queries=100"]
    return [
        train(collection, out, "bm25", recipe="bm25", reporter=quiet).path,
        train(collection, out, "fielded", recipe="fielded", overrides=short, reporter=quiet).path,
    ]


def read_queries(collection: Path, number: int, seed: int = 1) -> list[str]:
    """Draw queries evenly over the corpus: half titles, half runs of words of a description."""
    with gzip.open(collection / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    draw = random.Random(seed)
    queries = []
    for i, document in enumerate(draw.sample(documents, number)):
        words = str(document["text"]).split()
        start = draw.randrange(max(1, len(words) - 12))
        run = " ".join(words[start : start + 3 + i % 10])
        queries.append(str(document["title"]) if i % 2 == 0 or not run else run)
    return queries


def brute_force(bundle: Bundle, query: str) -> list[tuple[str, float]]:
    """Return the top of the full ranking, computed densely in float64."""
    documents, encoded = bundle.encoded.whole(), bundle.model.encode_queries([query])
    u, indices, weights, _ = encoded.row(0)
    s = np.zeros(documents.sparse.width)
    s[indices] = weights
    scores = documents.bias.astype(np.float64)
    scores += np.asarray(documents.sparse.csr().astype(np.float64) @ s)
    if len(u):
        scores += np.asarray(documents.dense, np.float64) @ u.astype(np.float64)
    # Rows ascend by id, so a stable sort breaks ties by id.
    best = np.argsort(-scores, kind="stable")[:DEPTH]
    return [(bundle.documents.ids[row], float(scores[row])) for row in best.tolist()]


@contextmanager
def server(bundles: Path, workers: int, keys: Path, token: str) -> Iterator[str]:
    """Run the real server in its own processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {
        "FULLRANK_BUNDLES": str(bundles),
        "FULLRANK_PORT": str(port),
        "FULLRANK_WORKERS": str(workers),
        "FULLRANK_KEYS": str(keys),
        "FULLRANK_ANONYMOUS": "search",
        "FULLRANK_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank_service.process.run"],
        env=os.environ | environment,
        cwd=Path(__file__).resolve().parents[2],
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            try:
                headers = {"Authorization": f"Bearer {token}"}
                models = httpx.get(f"{url}/v1/models", timeout=5, headers=headers)
                found = models.raise_for_status().json()["workers"]
                if len(found) == workers and all(worker["generation"] for worker in found):
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
            if process.poll() is not None:
                sys.exit("the server did not start")
        yield url
    finally:
        process.terminate()
        process.wait(30)


async def exactness(url: str, bundles: Sequence[Bundle], queries: Sequence[str]) -> dict[str, Any]:
    """Count the answers over HTTP that equal the brute force, for each model."""
    result: dict[str, Any] = {}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for bundle in bundles:
            equal, certified, worst, took = 0, 0, 0.0, []
            for query in queries:
                body = {
                    "query": query,
                    "limit": DEPTH,
                    "fields": [],
                    "model": bundle.version,
                    "mode": "exact",
                }
                started = time.perf_counter()
                reply = (await client.post("/v1/search", json=body)).raise_for_status().json()
                took.append((time.perf_counter() - started) * 1000)
                expected = brute_force(bundle, query)
                found = [(hit["id"], hit["score"]) for hit in reply["hits"]]
                off = [abs(a - b) for (_, a), (_, b) in zip(found, expected, strict=True)]
                worst = max(worst, *off)
                same = [id for id, _ in found] == [id for id, _ in expected]
                equal += same and max(off) <= TOLERANCE
                certified += bool(reply["certified"])
            result[bundle.name] = {
                "queries": len(queries),
                "equal": equal,
                "certified": certified,
                "largest_score_difference": worst,
                "median_ms": round(statistics.median(took), 3),
            }
    return result


async def swaps(
    url: str,
    token: str,
    bundles: Sequence[Bundle],
    queries: Sequence[str],
    count: int,
    clients: int,
) -> dict[str, Any]:
    """Swap under constant load; count failed requests and mixed answers."""
    alone: dict[tuple[str, str], list[tuple[str, float]]] = {}
    failed: list[str] = []
    mixed: list[str] = []
    stale = acknowledged = 0
    answered: dict[str, int] = {bundle.version: 0 for bundle in bundles}
    took: list[float] = []
    done = asyncio.Event()

    async def ask(client: httpx.AsyncClient, query: str, **more: str) -> httpx.Response:
        body = {"query": query, "limit": DEPTH, "fields": [], "mode": "exact", **more}
        return await client.post("/v1/search", json=body)

    def hits(reply: dict[str, Any]) -> list[tuple[str, float]]:
        return [(hit["id"], hit["score"]) for hit in reply["hits"]]

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for bundle in bundles:
            for query in queries:
                reply = await ask(client, query, model=bundle.version)
                alone[bundle.version, query] = hits(reply.raise_for_status().json())

        async def load(seed: int) -> None:
            nonlocal stale
            draw = random.Random(seed)
            while not done.is_set():
                query = draw.choice(queries)
                least = acknowledged
                started = time.perf_counter()
                try:
                    response = await ask(client, query)
                except httpx.HTTPError as error:
                    failed.append(repr(error))
                    continue
                took.append((time.perf_counter() - started) * 1000)
                if response.status_code != 200:
                    failed.append(f"{response.status_code} {response.text[:200]}")
                    continue
                reply = response.json()
                version = reply["model"]
                answered[version] += 1
                stale += reply["generation"] < least
                if (
                    version != response.headers["X-Model-Version"]
                    or str(reply["generation"]) != response.headers["X-Model-Generation"]
                    or hits(reply) != alone[version, query]
                ):
                    mixed.append(f"{version}: {query}")

        loading = [asyncio.create_task(load(seed)) for seed in range(clients)]
        swap_ms, converged = [], 0
        started = time.perf_counter()
        for i in range(count):
            response = await client.put(
                "/v1/models/aliases/default",
                json={"version": bundles[i % len(bundles)].version},
                headers={"Authorization": f"Bearer {token}"},
            )
            reply = response.raise_for_status().json()
            swap_ms.append(reply["took_ms"])
            acknowledged = reply["generation"]
            converged += reply["converged"]
            await asyncio.sleep(0.1)
        seconds = time.perf_counter() - started
        done.set()
        await asyncio.gather(*loading)
    return {
        "swaps": count,
        "converged": converged,
        "last_generation": acknowledged,
        "clients": clients,
        "requests": sum(answered.values()) + len(failed),
        "requests_per_second": round(sum(answered.values()) / seconds, 1),
        "answered_by": answered,
        "failed": len(failed),
        "mixed": len(mixed),
        "stale": stale,
        "examples": (failed + mixed)[:3],
        "request_ms": {
            "median": round(statistics.median(took), 3),
            "p99": round(float(np.percentile(took, 99)), 3),
        },
        "swap_ms": {"median": statistics.median(swap_ms), "largest": max(swap_ms)},
    }


def main() -> None:
    """Build, serve, measure and print; exit 1 if a promise was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--bundles", type=Path, help="two bundles already there; else they are trained"
    )
    given = parser.parse_args()

    collection = data_folder() / "debian"
    with tempfile.TemporaryDirectory(prefix="fullrank-swap-") as folder:
        root = given.bundles or Path(folder)
        started = time.perf_counter()
        if given.bundles:
            paths = [path.parent for path in sorted(root.glob("*/*/manifest.json"))][:2]
        else:
            paths = build(collection, root, given.epochs)
        built = time.perf_counter() - started
        if len(paths) < 2:
            parser.error(f"{root} does not hold two bundles")
        bundles = [open_bundle(path) for path in paths]
        queries = read_queries(collection, given.queries)
        keys = Path(folder) / "keys.json"
        _, token = create_key(keys, ["admin"])
        with server(root, given.workers, keys, token) as url:
            exact = asyncio.run(exactness(url, bundles, queries))
            swapped = asyncio.run(swaps(url, token, bundles, queries, given.swaps, given.clients))
    result = {
        "benchmark": "swap",
        "machine": machine(["numpy", "scipy", "fastapi", "uvicorn", "httpx"]),
        "collection": "debian",
        "documents": len(bundles[0].documents),
        "settings": {"workers": given.workers, "seconds_to_build": round(built, 1)},
        "exactness": exact,
        "swaps": swapped,
    }
    show(result, given.json)
    wrong = swapped["failed"] + swapped["mixed"] + swapped["stale"]
    wrong += swapped["swaps"] - swapped["converged"]
    wrong += sum(model["queries"] - model["equal"] for model in exact.values())
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
