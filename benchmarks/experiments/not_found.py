"""What the floors of evidence leave out: nonsense, and no answers of real queries.

    python -m benchmarks.experiments.not_found [--only tldr/en,tldr/ko] [--seconds 60] [--queries 300] [--json]

Trains the default recipe for each collection and asks the bundle that it writes

    nonsense    queries of five kinds without a word of the collection (benchmarks/experiments/nonsense.py); `typed` of
                the first kind with completions of the last word, as a search box asks while people type
    real        queries of the test split, evenly spread
    errors      a known word of four to seven letters of a validation query, alone, with one random edit

and the MRR of the validation and of the test split with the floors and without them. `edits_share` is the share of the
MRR with the floors that test queries keep with one random edit, the mean of three seeds (as in typing_errors). `count`
is the median time that counting the found documents adds to an exact search of real queries, as a ratio to the time of
the search.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.edits import mistype
from benchmarks.experiments.nonsense import KINDS, SEED, nonsense
from benchmarks.experiments.typing_errors import Split
from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import show
from fullrank.bundle import Bundle, open_bundle
from fullrank.complete.prefixes import last_word
from fullrank.live import View, known
from fullrank.measures import Float64, reciprocal_rank
from fullrank.models.widening import widen
from fullrank.retrieval.evidence import COUNTED
from fullrank.text.words import words
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.evaluation.judgement import Judgement, judge
from fullrank_trainer.train import train

_DEPTH, _TIMED = 1000, 100


def reciprocal_ranks(
    texts: Sequence[str], bundle: Bundle, judgements: Sequence[Judgement], *, with_floors: bool
) -> Float64:
    """Return the reciprocal rank of each judged query among all documents or those that reach the floors."""
    found = []
    for text, judgement in zip(texts, judgements, strict=True):
        out = judgement.left_out(len(bundle.documents))
        query = bundle.encode(text)
        floor = bundle.floor_of(text) if with_floors else None
        [ranking] = bundle.retriever.search(query, _DEPTH, deleted=out, floor=floor)
        found.append(reciprocal_rank(np.isin(ranking.rows, judgement.relevant).astype(np.int64)))
    return np.array(found)


def found_while_typed(bundle: Bundle, text: str) -> int:
    """Count what a query finds, at most COUNTED, with completions of its last word."""
    query, additions = bundle.encode(text), bundle.prefixes.of(text)
    floor = known.floor_of(View.of(bundle), text, last_word(text) if additions else None)
    if floor is None:
        return len(bundle.documents)
    return bundle.retriever.count(widen(query, additions).encoded, floor, COUNTED)


def typing_errors(bundle: Bundle, texts: Sequence[str], count: int) -> list[str]:
    """Return known words of queries, each alone and with an edit that leaves no known word."""
    rng = np.random.default_rng(SEED)
    known = bundle.known_words
    wanted = sorted(
        {word for text in texts for word in words(text) if 4 <= len(word) <= 7 and word.isalpha()}
    )
    wanted = [word for word in wanted if known.is_known(word)]
    drawn = [wanted[i] for i in rng.permutation(len(wanted))[:count].tolist()]
    return [wrong for word in drawn if not known.is_known(wrong := mistype(word, rng))]


def cost_of_counting(bundle: Bundle, texts: Sequence[str]) -> float:
    """Return the median of (time of a count) / (time of an exact search) over queries."""
    ratios = []
    for text in texts:
        query = bundle.encode(text)
        floor = bundle.floor_of(text)
        assert floor is not None
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


def texts_of(collection: Collection) -> Iterator[str]:
    """Yield the text fields of the documents."""
    for document in collection.documents:
        yield from (value for value in document.fields.values() if isinstance(value, str))


def measured(bundle: Bundle, collection: Collection, count: int) -> dict[str, Any]:
    """Return what one collection shows."""
    if bundle.floor is None:
        raise SystemExit(f"{bundle.version} has no floors")
    result: dict[str, Any] = {"documents": len(bundle.documents), "floor": bundle.card["floor"]}
    for split, others in (("valid", ("train",)), ("test", ("train", "valid"))):
        judgements, _ = judge(collection, split, others)
        texts = query_texts(collection, bundle.model, [j.query for j in judgements])
        for name, with_floors in (("", True), ("_without", False)):
            found = reciprocal_ranks(texts, bundle, judgements, with_floors=with_floors)
            result[f"{split}_mrr{name}"] = round(float(found.mean()), 5)
        if split == "valid":
            wrong = typing_errors(bundle, texts, count)
    edits = Split(collection, "test", ("train", "valid"), 0)
    rank = partial(reciprocal_ranks, bundle=bundle, judgements=edits.judgements, with_floors=True)
    means = {name: float(ranks.mean()) for name, ranks in edits.measure(rank).items()}
    result["edits_mrr"], result["edits_share"] = means["mrr"], means["edited"] / means["mrr"]
    real = [texts[i] for i in range(0, len(texts), max(1, len(texts) // count))][:count]
    totals = [bundle.search(text, 1).total for text in real]
    known = [*texts_of(collection), *texts]
    result["real"], result["real_without_hits"] = len(real), sum(total == 0 for total in totals)
    result["total_median"] = int(np.median(totals))
    result["nonsense"] = count
    for kind in KINDS:
        made_up = nonsense(kind, texts, known, count)
        result[f"{kind}_with_hits"] = sum(len(bundle.search(text)) > 0 for text in made_up)
        if kind == "letters":
            result["typed_with_hits"] = sum(found_while_typed(bundle, text) > 0 for text in made_up)
    result["errors"] = len(wrong)
    by_parts = [bundle.retriever.count(bundle.encode(text), bundle.floor, 1) for text in wrong]
    result["errors_below_the_floors"] = sum(count == 0 for count in by_parts)
    result["errors_without_hits"] = sum(len(bundle.search(text)) == 0 for text in wrong)
    result["count_to_search"] = round(cost_of_counting(bundle, real[:_TIMED]), 2)
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
