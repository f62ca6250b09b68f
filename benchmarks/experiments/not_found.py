"""What the floors of evidence leave out: nonsense, and no answers of real queries.

    python -m benchmarks.experiments.not_found [--only tldr/en,tldr/ko] [--seconds 60] [--queries 300] [--json]

Trains the default recipe for each collection and asks, of the bundle that it writes,

    nonsense    queries of one to three words of random letters that the real queries have; a few are near a known word
    real        queries of the test split, evenly spread

and the MRR of the validation and of the test split with the floors and without them. `count` is the median time that
counting the found documents adds to an exact search of real queries, as a ratio to the time of the search.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import show
from fullrank.bundle import Bundle, open_bundle
from fullrank.encoding import Encoded
from fullrank.measures import reciprocal_rank
from fullrank.retrieval import Floor
from fullrank.retrieval.evidence import COUNTED
from trainer.collection import Collection, read_collection
from trainer.evaluation.evaluate import Judgement, judge, query_texts
from trainer.train import train

_SEED = 7  # not that of the calibration
_DEPTH, _TIMED = 1000, 100


def nonsense(texts: Sequence[str], count: int) -> list[str]:
    """Return queries of random letters of these texts."""
    rng = np.random.default_rng(_SEED)
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    return [
        " ".join(
            "".join(rng.choice(letters, rng.integers(4, 12))) for _ in range(rng.integers(1, 4))
        )
        for _ in range(count)
    ]


def mrr(
    bundle: Bundle, queries: Encoded, judgements: Sequence[Judgement], floor: Floor | None
) -> float:
    """Return the mean reciprocal rank of judged queries among the documents that reach a floor."""
    found = []
    for i, judgement in enumerate(judgements):
        out = judgement.left_out(len(bundle.documents))
        query = queries.slice(i, i + 1)
        [ranking] = bundle.retriever.search(query, _DEPTH, deleted=out, floor=floor)
        found.append(reciprocal_rank(np.isin(ranking.rows, judgement.relevant).astype(np.int64)))
    return float(np.mean(found))


def cost_of_counting(bundle: Bundle, texts: Sequence[str], floor: Floor) -> float:
    """Return the median of (time of a count) / (time of an exact search) over queries."""
    ratios = []
    for text in texts:
        query = bundle.encode(text)
        search = partial(bundle.retriever.search, query, 10, floor=floor)
        count = partial(bundle.retriever.count, query, floor, COUNTED)
        ratios.append(_least_seconds(count) / _least_seconds(search))
    return float(np.median(ratios))


def _least_seconds(work: Callable[[], object]) -> float:
    least = np.inf
    for _ in range(5):
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least


def measured(bundle: Bundle, collection: Collection, count: int) -> dict[str, Any]:
    """Return what one collection shows."""
    floor = bundle.floor
    if floor is None:
        raise SystemExit(f"{bundle.version} has no floors")
    result: dict[str, Any] = {"documents": len(bundle.documents), "floor": bundle.card["floor"]}
    for split, others in (("valid", ("train",)), ("test", ("train", "valid"))):
        judgements, _ = judge(collection, split, others)
        texts = query_texts(collection, bundle.model, [j.query for j in judgements])
        queries = bundle.encode(texts)
        result[f"{split}_mrr"] = round(mrr(bundle, queries, judgements, floor), 5)
        result[f"{split}_mrr_without"] = round(mrr(bundle, queries, judgements, None), 5)
    real = [texts[i] for i in range(0, len(texts), max(1, len(texts) // count))][:count]
    totals = [bundle.retriever.count(bundle.encode(text), floor, COUNTED) for text in real]
    made_up = nonsense(texts, count)
    result["real"], result["real_without_hits"] = len(real), sum(total == 0 for total in totals)
    result["total_median"] = int(np.median(totals))
    result["nonsense"] = len(made_up)
    result["nonsense_with_hits"] = sum(len(bundle.search(text)) > 0 for text in made_up)
    result["count_to_search"] = round(cost_of_counting(bundle, real[:_TIMED], floor), 2)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and print one line of JSON for each collection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="tldr/en,tldr/ko", help="collections")
    parser.add_argument("--seconds", type=float, default=60, help="of each training; default 60")
    parser.add_argument("--queries", type=int, default=300, help="of each kind; default 300")
    parser.add_argument("--json", action="store_true", help="one JSON object a collection")
    given = parser.parse_args(arguments)
    for name in given.only.split(","):
        folder = collection_folder(name)
        with tempfile.TemporaryDirectory() as out:
            path = train(folder, Path(out), "found", seconds=given.seconds).path
            bundle = open_bundle(path)
            result = measured(bundle, read_collection(folder), given.queries)
        show({"collection": name, **result}, given.json)


if __name__ == "__main__":
    main()
