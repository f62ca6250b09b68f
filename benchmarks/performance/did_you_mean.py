"""How often `did_you_mean` names the query that was meant, and what it costs a query without an error.

    python -m benchmarks.performance.did_you_mean BUNDLE --collection DIR

Each test query with a word of at least four letters gets one random edit in one of them (benchmarks.experiments.edits).
The result has the shares of edited queries for which the suggestion has the words of the query (right), other words
(wrong) or for which there is none (silent), the share of queries without an edit that get a suggestion (needless), and
the median µs of looking at such a query and of encoding it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.experiments.edits import has_word, mistyped
from benchmarks.harness.report import show
from fullrank import open_bundle
from fullrank.live import View
from fullrank.live.known import did_you_mean
from fullrank.text.words import words
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.evaluation.judgement import judge


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--collection", type=Path, required=True)
    given = parser.parse_args(arguments)

    collection = read_collection(given.collection)
    view = View.of(open_bundle(given.bundle))
    view.bundle.known_words.warm()
    judgements, _ = judge(collection, "test")
    texts = query_texts(collection, view.model, [judgement.query for judgement in judgements])
    texts = [text for text in texts if has_word(text)]
    counts: Counter[str] = Counter()
    needless, taken = 0, []
    for number, text in enumerate(texts):
        meant = did_you_mean(view, mistyped(text, np.random.default_rng([1, number])))
        if meant is None:
            counts["silent"] += 1
        else:
            counts["right" if words(meant) == words(text) else "wrong"] += 1
        began = time.perf_counter()
        needless += did_you_mean(view, text) is not None
        looked = time.perf_counter()
        view.model.encode_queries([text])
        taken.append((looked - began, time.perf_counter() - looked))
    look_us, encode_us = (np.median(np.array(taken), axis=0) * 1e6).tolist()
    shares = {kind: round(counts[kind] / len(texts), 3) for kind in ("right", "wrong", "silent")}
    show(
        {"queries": len(texts), **shares, "needless": round(needless / len(texts), 3)}
        | {"look_us": round(look_us, 1), "encode_us": round(encode_us, 1)},
        True,
    )


if __name__ == "__main__":
    main()
