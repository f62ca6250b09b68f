"""Measure what ads cost: requests per second of /v1/match with ads and rules, as a share of those without.

    python -m benchmarks.performance.ads BUNDLE [--ads 10000] [--json]

The first documents of a bundle are indexed twice with its model: as they are, and each with a random ad. Apps in
this process, without sockets, are asked in turn to fill two placements of the same pages, whose texts are those of
other documents. One has no ads. The others get blocked categories (and those below them), advertisers, seats and
attributes, and a floor: one app with rules of its own for each page; one with the rules of one site; and one with the
mix that the bar is about, in which each of 1,000 sites has its rules and the site of rank r is asked for with a
probability proportional to 1/r. A share is the median over the rounds of the ratio within a round, in which all answer
the same pages; that by processor time, which no other process disturbs, stands beside it. No answer is logged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from benchmarks.harness.report import show
from fullrank.bundle import Bundle, open_bundle
from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings
from fullrank_trainer.indexing import index

BAR = 0.8
_PAGES = 40  # of a round
_WARMING = 5  # rounds that are not measured
_CATEGORIES, _ADVERTISERS, _SEATS, _SITES = 700, 2000, 20, 1000
WITHOUT, OWN, SITE, MIX = "without ads", "rules of each page", "rules of one site", "mix of sites"

Ask = Callable[[bytes], Awaitable[bytes]]


def random_ad(rng: random.Random) -> dict[str, Any]:
    """Return an ad with all kinds of fields that rules look at."""
    return {
        "adomain": [f"shop{rng.randrange(_ADVERTISERS)}.example"],
        "cat": [str(rng.randrange(_CATEGORIES)) for _ in range(rng.randint(1, 3))],
        "cattax": 7,
        "seat": f"s{rng.randrange(_SEATS)}",
        "attr": rng.sample(range(1, 18), rng.randint(0, 3)),
        "price": round(rng.uniform(0.1, 5), 2),
        "cur": "EUR",
        "status": "active" if rng.random() < 0.9 else "paused",
        "start": "2020-01-01T00:00:00Z",
        "end": "2099-01-01T00:00:00Z",
    }


def site_rules(rng: random.Random) -> dict[str, Any]:
    """Return the rules of a site, and its placements with their floor."""
    floors: Mapping[str, Any] = {"bidfloor": rng.uniform(0, 1), "bidfloorcur": "EUR"}
    return {
        "bcat": [str(rng.randrange(_CATEGORIES)) for _ in range(10)],
        "cattax": 7,
        "badv": [f"shop{rng.randrange(_ADVERTISERS)}.example" for _ in range(20)],
        "bseat": [f"s{rng.randrange(_SEATS)}"],
        "battr": rng.sample(range(1, 18), 3),
        "placements": [{"id": "top", "count": 2, **floors}, {"id": "side", **floors}],
    }


def bodies(bundle: Bundle, first: int, rng: random.Random) -> dict[str, list[bytes]]:
    """Return requests without rules, and with each kind of rules, for the pages of documents from a row on."""
    sites = [site_rules(rng) for _ in range(_SITES)]
    visits = [1 / rank for rank in range(1, _SITES + 1)]
    found: dict[str, list[bytes]] = {WITHOUT: [], OWN: [], SITE: [], MIX: []}
    for row in range(first, min(len(bundle.documents), first + 2000)):
        fields = bundle.documents.fields(row)
        page = {name: str(fields.get(name) or "")[:4000] for name in ("title", "text")}
        asked: dict[str, Any] = {"page": page, "record": False, "fields": ["title"]}
        asked["placements"] = [{"id": "top", "count": 2}, {"id": "side"}]
        rules = {
            WITHOUT: {},
            OWN: site_rules(rng),
            SITE: sites[0],
            MIX: rng.choices(sites, visits)[0],
        }
        for kind, given in rules.items():
            found[kind].append(json.dumps(asked | given).encode())
    return found


def write_corpus(bundle: Bundle, count: int, path: Path, rng: random.Random | None) -> None:
    """Write the first documents of a bundle as a corpus, with ads if there is a generator of random numbers."""
    with path.open("w", encoding="utf-8") as file:
        for row in range(count):
            line = {"_id": bundle.documents.ids[row], **bundle.documents.fields(row)}
            if rng is not None:
                line["ad"] = random_ad(rng)
            file.write(json.dumps(line) + "\n")


def asking(app: FastAPI) -> Ask:
    """Return a function that posts a body to /v1/match of an app and returns the body of its answer."""

    async def ask(body: bytes) -> bytes:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        headers.append((b"content-length", b"%d" % len(body)))
        scope = {
            "type": "http", "method": "POST", "path": "/v1/match", "raw_path": b"/v1/match",
            "query_string": b"", "root_path": "", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        await app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        if sent[0]["status"] != 200:
            raise RuntimeError(f"answered {sent[0]['status']}: {content!r}")
        return content

    return ask


async def measure(
    plain: Path, ads: Path, requests: Mapping[str, list[bytes]], rounds: int, tree: Path
) -> dict[str, Any]:
    """Ask all kinds in turn; for each, requests per second at the median, the share, and the documents placed."""
    seconds: dict[str, list[float]] = {kind: [] for kind in requests}
    busy: dict[str, list[float]] = {kind: [] for kind in requests}
    placed = dict.fromkeys(requests, 0)
    kinds = list(requests)
    async with AsyncExitStack() as stack:
        asks = {}
        for kind in requests:
            # Without a cache of embeddings, because pages come again after some rounds.
            settings = Settings(bundles=ads, ad_taxonomy=tree, cache_entries=0)
            if kind == WITHOUT:
                settings = Settings(bundles=plain, cache_entries=0)
            app = create_app(settings)
            await stack.enter_async_context(app.router.lifespan_context(app))
            asks[kind] = asking(app)
        for turn in range(rounds + _WARMING):
            first = turn % len(kinds)
            for kind in kinds[first:] + kinds[:first]:
                own = requests[kind]
                pages = [own[(turn * _PAGES + i) % len(own)] for i in range(_PAGES)]
                began, before = time.perf_counter(), time.process_time()
                replies = [await asks[kind](page) for page in pages]
                took, used = time.perf_counter() - began, time.process_time() - before
                if turn >= _WARMING:
                    seconds[kind].append(took)
                    busy[kind].append(used)
                    hits = [p["hits"] for reply in replies for p in json.loads(reply)["placements"]]
                    placed[kind] += sum(map(len, hits))

    def share(of: Mapping[str, list[float]], kind: str) -> float:
        return statistics.median(a / b for a, b in zip(of[WITHOUT], of[kind], strict=True))

    return {
        kind: {
            "requests_per_second": _PAGES / statistics.median(seconds[kind]),
            "share": share(seconds, kind),
            "share_of_processor_time": share(busy, kind),
            "hits_per_page": placed[kind] / (rounds * _PAGES),
        }
        for kind in requests
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="the model, and documents for ads and pages")
    parser.add_argument("--ads", type=int, default=10_000, help="default 10,000")
    parser.add_argument("--rounds", type=int, default=60, help="default 60")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args(arguments)
    rng, bundle = random.Random(given.seed), open_bundle(given.bundle)
    if len(bundle.documents) <= given.ads:
        parser.error(f"the bundle has {len(bundle.documents)} documents: ask for fewer ads")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, source in (("plain", None), ("ads", rng)):
            write_corpus(bundle, given.ads, folder / f"{kind}.jsonl", source)
            index(given.bundle, folder / f"{kind}.jsonl", folder / kind, kind, processes=1)
        tree = folder / "taxonomy.tsv"
        # Ten categories below each of the first 63.
        tree.write_text("".join(f"{id}\t{(id - 70) // 10}\n" for id in range(70, _CATEGORIES)))
        os.environ.pop("FULLRANK_BUNDLES", None)
        requests = bodies(bundle, given.ads, rng)
        found = asyncio.run(measure(folder / "plain", folder / "ads", requests, given.rounds, tree))
    show({**found, "bar of the mix": BAR}, given.json)


if __name__ == "__main__":
    main()
