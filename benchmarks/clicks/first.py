"""What the first clicks of a shop bring before any training: the service with them in its log against one without.

    python -m benchmarks.clicks.first SHOP [--first 1000]

SHOP is a folder with products.csv (sku, name) and clicks.csv.gz (time, user, query, sku). A bundle is trained without
judgements; the first clicks are logged as happening now, and the service is asked what people typed later.
Measured: the mean of 1/rank of the clicked document, 0 beyond the first five places, a click.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from fastapi.testclient import TestClient

from fullrank.events.lists import ServedList, normalised
from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter
from fullrank.progress import Reporter
from service.app import create_app
from service.settings import Settings
from trainer.train import train

PLACES = 5
Click = Mapping[str, str]


def main() -> None:
    """Print the measure of later clicks, without and with the first."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shop", type=Path)
    parser.add_argument("--first", type=int, default=1000)
    asked = parser.parse_args()
    with (asked.shop / "products.csv").open(encoding="utf-8") as file:
        products = list(csv.DictReader(file))
    with gzip.open(asked.shop / "clicks.csv.gz", "rt", encoding="utf-8") as file:
        known = {product["sku"] for product in products}
        clicks = sorted(
            (click for click in csv.DictReader(file) if click["sku"] in known),
            key=lambda click: click["time"],
        )
    first, later = clicks[: asked.first], clicks[asked.first :]
    newest = later[-len(clicks) // 5 :]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        collection = root / "shop"
        collection.mkdir()
        lines = [orjson.dumps({"_id": p["sku"], "title": p["name"]}) + b"\n" for p in products]
        (collection / "corpus.jsonl").write_bytes(b"".join(lines))
        train(collection, root / "bundles", "shop", threads=1, reporter=Reporter(quiet=True))
        print(f"{'clicks logged':>14} {'all later':>10} {'last fifth':>10}")
        for logged in ([], first):
            log(root / "bundles" / ".events", logged)
            found = answers(root / "bundles", later, logged)
            columns = " ".join(f"{measure(found, part):10.4f}" for part in (later, newest))
            print(f"{len(logged):14,} {columns}", flush=True)


def log(folder: Path, clicks: Sequence[Click]) -> None:
    """Log clicks as those of the last seconds.

    Who comes back on another day is another person here, as a person votes once a day.
    """
    now = time.time()
    lists, events = [], []
    for number, click in enumerate(clicks):
        texts = {"user_id": f"{click['user']} {click['time'][:10]}"}
        id, at = f"first-{number}", now - (len(clicks) - number) / 1000
        lists.append(
            ServedList(id, at, click["query"], [click["sku"]], kind="reported", texts=texts).line()
        )
        events.append(Event("click", at, {"query_id": id, **texts}, click["sku"]).line())
    for kind, records in ((LISTS, lists), (EVENTS, events)):
        if records:
            writer = SegmentWriter(folder, kind)
            writer.append(records)
            writer.close()


def answers(
    bundles: Path, clicks: Iterable[Click], logged: Sequence[Click]
) -> dict[str, list[str]]:
    """Return the first places for each query, once the service has counted what was logged."""
    settings = Settings(bundles=bundles, anonymous="search", usage_refresh_s=1)
    with TestClient(create_app(settings), base_url="http://localhost") as client:

        def search(query: str, *, explain: bool = False) -> list[dict[str, Any]]:
            asked = {"query": query, "limit": PLACES, "record": False, "prefix": "none"}
            reply = client.post("/v1/search", json={**asked, "explain": explain})
            hits: list[dict[str, Any]] = reply.raise_for_status().json()["hits"]
            return hits

        def is_counted() -> bool:
            hits = [hit for click in logged[:20] for hit in search(click["query"], explain=True)]
            return any(hit["explanation"]["clicks"]["in_all"] for hit in hits)

        while logged and not is_counted():
            time.sleep(0.1)
        queries = {normalised(click["query"]) for click in clicks}
        return {query: [hit["id"] for hit in search(query)] for query in sorted(queries)}


def measure(found: Mapping[str, Sequence[str]], clicks: Sequence[Click]) -> float:
    """Return the mean of 1/rank of clicked documents."""
    total = 0.0
    for click in clicks:
        ids = found[normalised(click["query"])]
        total += 1 / (1 + ids.index(click["sku"])) if click["sku"] in ids else 0.0
    return total / len(clicks)


if __name__ == "__main__":
    main()
