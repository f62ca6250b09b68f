"""The time of a completion over the titles, words and queries of a collection.

    python -m benchmarks.performance.completion BUNDLE --collection DIR [--texts 300]

Every prefix of up to 24 characters of some titles and queries is completed, as it is and with one random edit. The
training queries stand for those of a log, each asked by three people. The result has milliseconds: the median, the 99th
percentile and the longest time of a completion, and for comparison the median of an exact search with its encoding. Set
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: a service asks with one thread.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.report import show
from fullrank import open_bundle
from fullrank.events.lists import normalised
from fullrank.live import View
from fullrank_service.usage.candidates import CandidateReader
from fullrank_service.usage.digest import Digest
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread, query_texts
from fullrank_trainer.evaluation.judgement import judge

_LONGEST = 24
_LIMIT = 8


def edited(text: str, coin: random.Random) -> str:
    """Return a text with a random letter left out, doubled, replaced or swapped with the next."""
    place = coin.randrange(len(text))
    head, letter, tail = text[:place], text[place], text[place + 1 :]
    kinds = (
        head + tail,
        head + letter * 2 + tail,
        head + "e" + tail,
        head + tail[:1] + letter + tail[1:],
    )
    return coin.choice(kinds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time completions and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=300)
    given = parser.parse_args(arguments)

    collection = read_collection(given.collection)
    bundle = open_bundle(given.bundle)
    queries = {}
    for split in ("train", "test"):
        judgements, _ = judge(collection, split)
        ids = [judgement.query for judgement in judgements]
        queries[split] = query_texts(collection, bundle.model, ids)
    logged = {normalised(text): 3 for text in queries["train"]}
    began = time.perf_counter()
    reader, view = CandidateReader(), View.of(bundle)
    completions = reader.completions(view, Digest(queries={bundle.name: logged}))
    first_s, began = time.perf_counter() - began, time.perf_counter()
    completions = reader.completions(view, Digest(queries={bundle.name: logged}))
    again_s = time.perf_counter() - began

    rows = evenly_spread(len(bundle.documents), given.texts).tolist()
    texts = [str(bundle.documents.fields(row).get("title", "")) for row in rows]
    texts += [queries["test"][i] for i in evenly_spread(len(queries["test"]), given.texts).tolist()]
    coin = random.Random(1)
    taken: dict[str, list[float]] = {"typed": [], "edited": [], "search": []}
    found = {"typed": 0, "edited": 0}
    for text in texts:
        for size in range(1, min(len(text), _LONGEST) + 1):
            for kind, prefix in (("typed", text[:size]), ("edited", edited(text[:size], coin))):
                began = time.perf_counter()
                several = completions.complete(prefix, _LIMIT)
                taken[kind].append(time.perf_counter() - began)
                found[kind] += bool(several)
    for text in texts:
        began = time.perf_counter()
        bundle.retriever.search(bundle.model.encode_queries([text]), 10)
        taken["search"].append(time.perf_counter() - began)
    result: dict[str, float] = {"texts": len(completions)}
    for kind in ("typed", "edited"):
        ms = np.array(taken[kind]) * 1e3
        result[f"{kind}_p50_ms"] = round(float(np.median(ms)), 3)
        result[f"{kind}_p99_ms"] = round(float(np.percentile(ms, 99)), 3)
        result[f"{kind}_max_ms"] = round(float(ms.max()), 3)
        result[f"{kind}_answered"] = round(found[kind] / len(ms), 3)
    result["search_p50_ms"] = round(float(np.median(taken["search"])) * 1e3, 3)
    result |= {"first_build_s": round(first_s, 2), "next_build_s": round(again_s, 2)}
    show(result, True)


if __name__ == "__main__":
    main()
