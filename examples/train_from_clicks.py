"""Train from a click log: turn a CSV of clicks into a collection, train a model, and see what it learned.

    python -m examples.train_from_clicks [FOLDER]

Shows that a model finds products by words that no product contains, because people clicked them.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from examples.shop import products, write_click_log
from fullrank import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.train import train

QUIET = Reporter(quiet=True)


def write_collection(log: Path, folder: Path) -> None:
    """Write corpus, queries and how often each document was clicked; the newest tenth of the clicks is for testing."""
    with log.open(encoding="utf-8", newline="") as file:
        clicks = [(row["query"], row["product"]) for row in csv.DictReader(file)]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "weights").mkdir(exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(product) + "\n" for product in products())
    ids = {query: f"q{i}" for i, query in enumerate(sorted({query for query, _ in clicks}))}
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"_id": id, "text": q}) + "\n" for q, id in ids.items())
    newest = len(clicks) // 10
    for split, part in (("train", clicks[:-newest]), ("test", clicks[-newest:])):
        counts = Counter(part)
        scores = [f"{ids[query]}\t{product}\t1\n" for query, product in counts]
        weights = [f"{ids[query]}\t{product}\t{n}\n" for (query, product), n in counts.items()]
        for name, column, lines in (("qrels", "score", scores), ("weights", "weight", weights)):
            text = f"query-id\tcorpus-id\t{column}\n" + "".join(lines)
            (folder / name / f"{split}.tsv").write_text(text, "utf-8")


def main(folder: Path) -> None:
    """Train in a folder and search for a word that no product contains."""
    write_click_log(folder / "clicks.csv")
    write_collection(folder / "clicks.csv", folder / "collection")
    out, short = folder / "bundles", ["auto.seconds=5"]
    result = train(folder / "collection", out, "shop", overrides=short, reporter=QUIET)
    for row in (row.as_dict() for row in result.table):
        print(f"{row['system']:8} MRR, {row['split']}: {row['mrr']:.3f}")
    bundle = open_bundle(result.path)
    for query in ("gumboots", "polar pullover"):
        print(query, "→", [hit.fields["title"] for hit in bundle.search(query, limit=3)])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
