"""Experiment, shop: what people click later in the log of a real shop.

    python -m benchmarks.clicks.shop [--part test|valid] [--seeds 1,2,3] [--markdown]
    python -m benchmarks.clicks.shop --failed 20
    python -m benchmarks.clicks.shop --first 1000 [--markdown]

The log lists clicks without what was shown. Its first 80 % teach and its last 20 % are predicted; with --part valid, on
which settings are chosen, the first 64 % teach and the next 16 % are predicted. A click counts 1 / rank if its document
is among the first five that a search answers, else 0; the figure is the mean over clicks, MRR@5. "New queries"
are clicks on queries that training never saw.

The peers are bm25s over the same words, then with ln(1 + clicks of the document), then also with
ln(1 + clicks of the document after the same query).

With --first, a bundle is trained on the products without judgements. The first clicks are logged as happening now, and
a service is asked what people typed later, without them and with them; the last fifth of the log is measured alone,
too.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import Table, print_tables
from benchmarks.peers.bm25 import fit_bm25
from benchmarks.peers.protocol import PeerData
from fullrank import open_bundle
from fullrank.bundle import Bundle, find_bundle
from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank.models.memory import query_key
from fullrank.progress import Reporter
from fullrank.retrieval import Match
from fullrank.storage.encoding import Float64
from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread
from fullrank_trainer.train import train

DEPTH = 5
LEARN = 0.8
POPULARITY, CLICKS = 0.3, 3.0
"""Weights of the peers: the best ones on --part valid, of 0.1, 0.15, 0.2, 0.3, 0.5 and of 0.5, 1, 2, 3."""

Search = Callable[[str], Sequence[str]]
"""The ids of the first documents for a query."""


class Click(NamedTuple):
    """A query as typed, and the document that was clicked after it."""

    query: str
    document: str
    user: str
    time: str


@dataclass(frozen=True)
class Shop:
    """The log of a shop, cut in two.

    Attributes:
        names: Id → name of each document.
        learned: Clicks that teach.
        predicted: Clicks after them.
    """

    names: dict[str, str]
    learned: Sequence[Click]
    predicted: Sequence[Click]

    def figures(self, search: Search) -> dict[str, float]:
        """Return MRR@5, of all clicks and of those on new queries."""
        seen = {query_key(click.query) for click in self.learned}
        answers: dict[str, Sequence[str]] = {}
        everything, new = [], []
        for click in self.predicted:
            if click.query not in answers:
                answers[click.query] = search(click.query)[:DEPTH]
            found = answers[click.query]
            gain = 1 / (found.index(click.document) + 1) if click.document in found else 0.0
            everything.append(gain)
            if query_key(click.query) not in seen:
                new.append(gain)
        return {"all": float(np.mean(everything)), "new": float(np.mean(new))}


def read_shop(folder: Path, part: str) -> Shop:
    """Read products.csv and clicks.csv.gz, in the order of time, and cut the clicks."""
    with (folder / "products.csv").open(newline="", encoding="utf-8") as lines:
        names = {row["sku"]: row["name"] for row in csv.DictReader(lines)}
    with gzip.open(folder / "clicks.csv.gz", "rt", newline="", encoding="utf-8") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: row["time"])
    clicks = [
        Click(" ".join(row["query"].casefold().split()), row["sku"], row["user"], row["time"])
        for row in rows
        if row["sku"] in names
    ]
    end = len(clicks) if part == "test" else int(LEARN * len(clicks))
    cut = int(LEARN * end)
    return Shop(names, clicks[:cut], clicks[cut:end])


def write_collection(shop: Shop, folder: Path, *, clicks: bool) -> Path:
    """Write the products as a collection; with ``clicks``, as judgements with their counts as weights."""
    folder.mkdir()
    documents = ({"_id": id, "title": name} for id, name in shop.names.items())
    _write_lines(folder / "corpus.jsonl", map(json.dumps, documents))
    if not clicks:
        return folder
    counts = Counter((click.query, click.document) for click in shop.learned)
    queries = {query: f"q{i}" for i, query in enumerate(sorted({query for query, _ in counts}))}
    lines = ({"_id": id, "text": query} for query, id in queries.items())
    _write_lines(folder / "queries.jsonl", map(json.dumps, lines))
    for name, column in (("qrels", "score"), ("weights", "weight")):
        (folder / name).mkdir()
        values = [
            f"{queries[query]}\t{document}\t{n if name == 'weights' else 1}"
            for (query, document), n in sorted(counts.items())
        ]
        _write_lines(folder / name / "train.tsv", [f"query-id\tcorpus-id\t{column}", *values])
    return folder


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def peers(shop: Shop, folder: Path) -> dict[str, Search]:
    """Return BM25, with popularity, and with the clicks after the same query too; ``folder`` has the products."""
    ids, texts = list(shop.names), list(shop.names.values())
    row = {id: i for i, id in enumerate(ids)}
    bm25 = fit_bm25(PeerData(read_collection(folder), texts, []), {})
    chosen = np.zeros(len(ids))
    after: dict[str | None, Float64] = {}
    for click in shop.learned:
        chosen[row[click.document]] += 1
        counts = after.setdefault(query_key(click.query), np.zeros(len(ids)))
        counts[row[click.document]] += 1

    def search(popularity: float, clicks: float) -> Search:
        def found(query: str) -> Sequence[str]:
            scores = np.maximum(bm25.score([query])[0].astype(np.float64), 0)
            scores += popularity * np.log1p(chosen)
            if (counts := after.get(query_key(query))) is not None:
                scores += clicks * np.log1p(counts)
            return [ids[i] for i in np.argsort(-scores, kind="stable")[:DEPTH]]

        return found

    return {
        "bm25s": search(0, 0),
        "bm25s + popularity": search(POPULARITY, 0),
        "bm25s + popularity + clicks": search(POPULARITY, CLICKS),
    }


def later(shop: Shop) -> Search:
    """Return the order that knows the later clicks after each query, the best that one order for all people can be."""
    clicks: dict[str, Counter[str]] = {}
    for click in shop.predicted:
        clicks.setdefault(click.query, Counter())[click.document] += 1
    return lambda query: [id for id, _ in clicks[query].most_common(DEPTH)]


def bundle_search(bundle: Bundle, match: Match | None = None) -> Search:
    """Return the search of a bundle, as it is served."""
    return lambda query: [hit.id for hit in bundle.search(query, limit=DEPTH, match=match)]


def retrained(shop: Shop, products: Path, folder: Path, seed: int) -> Bundle:
    """Train on the products, import the clicks that teach, and retrain, by the commands of docs/guides/clicks."""
    bundles, log = folder / "bundles", folder / "clicks.csv"
    with log.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Click._fields)
        writer.writerows(shop.learned)
    for command in (
        f"train {products} --out {bundles} --name shop --seed {seed}",
        f"events import {bundles / '.events'} {log}",
        f"retrain shop --bundles {bundles} --seed {seed}",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fullrank", *command.split()], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"fullrank {command}: {done.stderr.strip()[-400:]}")
    return open_bundle(find_bundle(bundles, "shop"))


def measure(shop: Shop, seeds: Sequence[int], folder: Path) -> dict[str, dict[str, float]]:
    """Return the figures of each system, the seeds of learned ones one by one."""
    products = write_collection(shop, folder / "products", clicks=False)
    counted = write_collection(shop, folder / "clicks", clicks=True)
    found = {name: shop.figures(search) for name, search in peers(shop, products).items()}
    found["an order that knows the later clicks"] = shop.figures(later(shop))
    bundle = open_bundle(train(products, folder, "none").path)
    found["default, no clicks"] = shop.figures(bundle_search(bundle))
    found["default, no clicks, match=any"] = shop.figures(bundle_search(bundle, "any"))
    for seed in seeds:
        result = train(counted, folder, f"counted-{seed}", seed=seed)
        search = bundle_search(open_bundle(result.path))
        found[f"default with weights, seed {seed}"] = shop.figures(search)
    for seed in seeds:
        own = folder / f"log-{seed}"
        own.mkdir()
        search = bundle_search(retrained(shop, products, own, seed))
        found[f"events import and retrain, seed {seed}"] = shop.figures(search)
    return found


def failed(shop: Shop, search: Search, count: int) -> Table:
    """Return some of the clicks whose document is not among the first ones, evenly spread over the time."""
    missed = [c for c in shop.predicted if c.document not in search(c.query)[:DEPTH]]
    learned = Counter((query_key(click.query), click.document) for click in shop.learned)
    asked = Counter(query_key(click.query) for click in shop.learned)
    rows = []
    for i in evenly_spread(len(missed), count).tolist():
        query, wanted = missed[i].query, missed[i].document
        key, found = query_key(query), search(query)
        row = [query, str(asked[key]), shop.names[wanted], str(learned[key, wanted])]
        first = [shop.names[found[0]], str(learned[key, found[0]])] if found else ["nothing", ""]
        rows.append(row + first)
    return Table(
        f"{len(rows)} of {len(missed):,} clicks that the first {DEPTH} miss ({len(shop.predicted):,} in all)",
        ("query", "clicks before", "clicked", "before", "first", "before"),
        rows,
        left=1,
    )


def first_clicks(folder: Path, count: int) -> Table:
    """Measure later clicks in a service, without and with the first ones in its log."""
    whole = read_shop(collection_folder("shop"), "test")
    clicks = [*whole.learned, *whole.predicted]
    first, later = clicks[:count], clicks[count:]
    rows = []
    products = write_collection(whole, folder / "products", clicks=False)
    bundles = folder / "bundles"
    train(products, bundles, "shop", reporter=Reporter(quiet=True))
    for logged in ([], first):
        log(bundles / ".events", logged)
        found = answers(bundles, later, logged)
        shop = Shop(whole.names, whole.learned, later)
        newest = replace(shop, predicted=whole.predicted)
        figures = [part.figures(found.__getitem__)["all"] for part in (shop, newest)]
        rows.append((f"{len(logged):,}", *(f"{figure:.3f}" for figure in figures)))
    return Table("MRR@5 by clicks in the log", ("clicks logged", "all later", "last fifth"), rows)


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
    from fastapi.testclient import TestClient  # warns where tests make warnings errors

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=("test", "valid"), default="test")
    parser.add_argument("--seeds", default="1,2,3", metavar="N,...")
    parser.add_argument(
        "--failed", type=int, metavar="N", help="print N clicks that the default misses"
    )
    parser.add_argument("--first", type=int, metavar="N", help="measure the first N clicks alone")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    if given.first:
        with tempfile.TemporaryDirectory(prefix="fullrank-first-") as folder:
            print_tables([first_clicks(Path(folder), given.first)], given.markdown)
        return
    shop = read_shop(collection_folder("shop"), given.part)
    if given.failed:
        with tempfile.TemporaryDirectory(prefix="fullrank-shop-") as folder:
            counted = write_collection(shop, Path(folder) / "clicks", clicks=True)
            bundle = open_bundle(train(counted, Path(folder), "counted").path)
            print_tables([failed(shop, bundle_search(bundle), given.failed)], given.markdown)
        return
    with tempfile.TemporaryDirectory(prefix="fullrank-shop-") as folder:
        found = measure(shop, [int(seed) for seed in given.seeds.split(",")], Path(folder))
    table = Table(
        f"MRR@5 of {len(shop.predicted):,} later clicks, after {len(shop.learned):,} training clicks ({given.part})",
        ("system", "all", "new queries"),
        [(name, f"{f['all']:.3f}", f"{f['new']:.3f}") for name, f in found.items()],
    )
    print_tables([table], given.markdown)


if __name__ == "__main__":
    main()
