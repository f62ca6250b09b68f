"""Train from a click log: turn a CSV of clicks into a collection, train a model, and see what it learned.

    python -m examples.train_from_clicks [FOLDER]

Shows that a model finds products by words that no product contains, because people clicked them.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from pathlib import Path

from examples.shop import products, write_click_log
from fullrank import open_bundle
from fullrank.progress import Reporter
from trainer.train import train

QUIET = Reporter(quiet=True)
HEADER = "query-id\tcorpus-id\tscore\n"


def write_collection(log: Path, folder: Path) -> None:
    """Write corpus, queries and judgements: one query in ten selects settings, one measures the result."""
    clicks: dict[str, set[str]] = {}
    with log.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            clicks.setdefault(row["query"], set()).add(row["product"])
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(product) + "\n" for product in products())
    splits = {name: [HEADER] for name in ("train", "valid", "test")}
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as queries:
        for i, (query, ids) in enumerate(sorted(clicks.items())):
            queries.write(json.dumps({"_id": f"q{i}", "text": query}) + "\n")
            split = {0: "valid", 1: "test"}.get(i % 10, "train")
            splits[split] += [f"q{i}\t{product}\t1\n" for product in sorted(ids)]
    for split, lines in splits.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines), "utf-8")


def main(folder: Path) -> None:
    """Train in a folder and search for a word that no product contains."""
    write_click_log(folder / "clicks.csv")
    write_collection(folder / "clicks.csv", folder / "collection")
    short = ["auto.seconds=5"]
    result = train(
        folder / "collection", folder / "bundles", "shop", overrides=short, reporter=QUIET
    )
    for row in (row.as_dict() for row in result.table):
        print(f"{row['system']:8} MRR on {row['split']}: {row['mrr']:.3f}")
    bundle = open_bundle(result.path)
    for query in ("gumboots", "polar pullover"):
        print(query, "→", [hit.fields["title"] for hit in bundle.search(query, limit=3)])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
