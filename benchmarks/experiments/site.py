"""Experiment, questions to a documentation site: is the page that answers a question found first?

    python -m benchmarks.experiments.site [--folder docs] [--questions FILE.tsv] [--markdown]

The folder is imported and trained as the tutorial does. A line of the questions has a query and the pages that answer
it, without endings and separated by spaces. A page ranks where the first of its passages ranks.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness.report import Table, print_tables
from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank.measures import estimate
from fullrank_trainer.train import train

_HERE = Path(__file__).resolve()
QUESTIONS = _HERE.with_suffix(".tsv")
SITE = _HERE.parents[2] / "docs"


def read_questions(path: Path) -> dict[str, set[str]]:
    """Return the pages that answer each query."""
    with path.open(encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return {row["query"]: {*row["pages"].split()} for row in rows}


def rank_of(bundle: Bundle, query: str, answers: set[str]) -> float:
    """Return the rank of the first page that answers a query, infinity if none is found."""
    ids = (hit.id for hit in bundle.search(query, limit=200))
    pages = dict.fromkeys(str(Path(id.partition("#")[0]).with_suffix("")) for id in ids)
    return next((i for i, page in enumerate(pages, 1) if page in answers), np.inf)


def main() -> None:
    """Import, train, ask and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=SITE)
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    questions, rows = read_questions(given.questions), []
    with tempfile.TemporaryDirectory(prefix="fullrank-site-") as out:
        collection = Path(out) / "pages"
        command = [sys.executable, "-m", "fullrank", "import", given.folder, collection]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for recipe in ("bm25", "auto"):
            bundle = open_bundle(train(collection, Path(out), recipe, recipe=recipe).path)
            ranks = np.array([rank_of(bundle, *question) for question in questions.items()])
            figures = [
                estimate(np.asarray(x, np.float64)) for x in (1 / ranks, ranks <= 1, ranks <= 3)
            ]
            rows.append((recipe, *(f"{one.mean:.3f} ± {one.error_text(3)}" for one in figures)))
    headings = ("recipe", "MRR", "first", "among the first three")
    print_tables([Table(f"{len(questions)} questions", headings, rows)], given.markdown)


if __name__ == "__main__":
    main()
