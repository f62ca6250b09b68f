"""Experiment, first clicks: what they bring before any training, in a service with them in its log and in one without.

    python -m benchmarks.clicks.first [--first 1000] [--markdown]

A bundle is trained on the products of the shop without judgements. The first clicks are logged as happening now, and
the service is asked what people typed later; a click counts as in benchmarks.clicks.shop. The last fifth of the log
is measured alone, too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from benchmarks.clicks.shop import DEPTH, Click, Shop, read_shop, write_collection
from benchmarks.harness.lab import collection_folder
from benchmarks.harness.tables import Table, print_tables
from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank.progress import Reporter
from fullrank_service.app import create_app
from fullrank_service.settings import Settings
from fullrank_trainer.train import train


def main() -> None:
    """Measure later clicks, without and with the first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    whole = read_shop(collection_folder("shop"), "test")
    clicks = [*whole.learned, *whole.predicted]
    first, later = clicks[: given.first], clicks[given.first :]
    rows = []
    with tempfile.TemporaryDirectory(prefix="fullrank-first-") as folder:
        products = write_collection(whole, Path(folder) / "products", clicks=False)
        bundles = Path(folder) / "bundles"
        train(products, bundles, "shop", reporter=Reporter(quiet=True))
        for logged in ([], first):
            log(bundles / ".events", logged)
            found = answers(bundles, later, logged)
            shop = Shop(whole.names, whole.learned, later)
            newest = replace(shop, predicted=whole.predicted)
            figures = [part.figures(found.__getitem__)["all"] for part in (shop, newest)]
            rows.append((f"{len(logged):,}", *(f"{figure:.3f}" for figure in figures)))
    table = Table("MAP@5 a click", ("clicks logged", "all later", "last fifth"), rows)
    print_tables([table], given.markdown)


def log(folder: Path, clicks: Sequence[Click]) -> None:
    """Log clicks as those of the last seconds.

    Who comes back on another day is another person here, as a person votes once a day.
    """
    now = time.time()
    lists, events = [], []
    for number, click in enumerate(clicks):
        texts = {"user_id": f"{click.user} {click.time[:10]}"}
        id, at = f"first-{number}", now - (len(clicks) - number) / 1000
        served = ServedList(id, at, click.query, [click.document], kind="reported", texts=texts)
        lists.append(served.line())
        events.append(Event("click", at, {"query_id": id, **texts}, click.document).line())
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
            asked = {"query": query, "limit": DEPTH, "record": False, "prefix": "none"}
            reply = client.post("/v1/search", json={**asked, "explain": explain})
            hits: list[dict[str, Any]] = reply.raise_for_status().json()["hits"]
            return hits

        def is_counted() -> bool:
            hits = [hit for click in logged[:20] for hit in search(click.query, explain=True)]
            return any(hit["explanation"]["clicks"]["in_all"] for hit in hits)

        while logged and not is_counted():
            time.sleep(0.1)
        queries = {click.query for click in clicks}
        return {query: [hit["id"] for hit in search(query)] for query in sorted(queries)}


if __name__ == "__main__":
    main()
