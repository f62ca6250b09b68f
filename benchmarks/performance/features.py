"""Documents per second of the featuriser, next to scikit-learn's TfidfVectorizer.

    python -m benchmarks.performance.features [--json] [--repeats 5] [--collection wikispeedia ...]

One repetition turns a list of texts into tf-idf unit vectors (float32, 1 + ln tf): vocabulary, document frequencies and
vectors. A kernel counts the words while a thread splits the next texts, whatever number of processes is asked for. The
peer does the same with its default tokeniser (words of two letters or more), which does not normalise Unicode and does
not split scripts without spaces, so it does less work. One query goes from text to vector with the vocabulary of the
corpus. Ratios are computed per repetition; the report gives their median. A megabyte is a million characters.
busy_elsewhere is the share of the machine used by other programs: the floor is for an idle machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.report import (
    Elsewhere,
    data_folder,
    machine,
    median_ratio,
    paired,
    seconds,
    show,
)
from fullrank.encoding import Rows
from fullrank.text.features import Vocabulary, count_corpus, tfidf, tfidf_idf
from fullrank.text.words import count_words

COLLECTIONS = ("wikispeedia", "debian")
FLOOR = 2.0


def read_texts(folder: Path) -> tuple[list[str], list[str]]:
    """Return (titles, title and text) of every document of a collection."""
    titles, texts = [], []
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            titles.append(document["title"])
            texts.append(document["title"] + " " + document["text"])
    return titles, texts


def ours(texts: list[str], processes: int) -> tuple[Vocabulary, np.ndarray, Rows]:
    """Return vocabulary, idf and tf-idf unit vectors of all texts."""
    counts = count_corpus([texts], processes=processes)
    idf = tfidf_idf(counts.document_frequency(), len(texts))
    return Vocabulary(counts.words), idf, tfidf(counts.columns[0], idf)


def peer(texts: list[str]) -> Any:
    """Return a fitted TfidfVectorizer. The import is here because worker processes do not need it."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    vectorizer.fit_transform(texts)
    return vectorizer


def one_query(queries: list[str], texts: list[str]) -> dict[str, Any]:
    """Measure the median microseconds from a query to its vector, ours and the peer's."""
    vocabulary, idf, _ = ours(texts, 1)
    vectorizer = peer(texts)
    vocabulary.rows(["built before the clock starts"])

    def encode(query: str) -> object:
        return tfidf(count_corpus([[query]]).over(vocabulary)[0], idf)

    mine = [seconds(partial(encode, query)) for query in queries]
    other = [seconds(partial(vectorizer.transform, [query])) for query in queries]
    return {
        "queries": len(queries),
        "words": statistics.mean(sum(count_words(query).values()) for query in queries),
        "fullrank_us": round(statistics.median(mine) * 1e6, 1),
        "sklearn_us": round(statistics.median(other) * 1e6, 1),
    }


def measure(folder: Path, repeats: int, processes: int) -> dict[str, Any]:
    """Measure one collection."""
    titles, texts = read_texts(folder)
    many = f"fullrank_{processes}"
    calls = {
        many: partial(ours, texts, processes),
        "fullrank_1": partial(ours, texts, 1),
        "sklearn": partial(peer, texts),
    }
    elsewhere = Elsewhere()
    measured = paired(calls, repeats)
    busy_elsewhere = elsewhere.share()
    return {
        "documents": len(texts),
        "characters": sum(map(len, texts)),
        "busy_elsewhere": busy_elsewhere,
        "seconds": {name: [round(s, 3) for s in values] for name, values in measured.items()},
        "documents_per_second": {
            name: round(len(texts) / statistics.median(values)) for name, values in measured.items()
        },
        "megabytes_per_second": {
            name: round(sum(map(len, texts)) / 1e6 / statistics.median(values), 1)
            for name, values in measured.items()
        },
        "times_sklearn": {
            name: round(median_ratio(measured["sklearn"], measured[name]), 2)
            for name in (many, "fullrank_1")
        },
        "one_query": one_query(titles[:: max(1, len(titles) // 500)], texts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--collection", choices=COLLECTIONS, nargs="+", default=COLLECTIONS)
    arguments = parser.parse_args()
    data = data_folder()
    processes = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "benchmark": "features",
        "machine": machine(["numpy", "scipy", "scikit-learn"]),
        "settings": {
            "repeats": arguments.repeats,
            "processes": processes,
            "peer": "TfidfVectorizer(sublinear_tf=True, dtype=float32).fit_transform",
        },
        "collections": {
            name: measure(data / name, arguments.repeats, processes)
            for name in arguments.collection
        },
    }
    result["floor"] = {
        "times_sklearn": FLOOR,
        "held": all(
            found["times_sklearn"][f"fullrank_{processes}"] >= FLOOR
            for found in result["collections"].values()
        ),
    }
    show(result, arguments.json)


if __name__ == "__main__":
    main()
