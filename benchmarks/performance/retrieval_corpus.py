"""Retrieval on one core: exact, fast, and what else there is, from 10,000 to a million documents.

    python -m benchmarks.performance.retrieval_corpus [--json] [--sizes debian,10000,63000,250000,1000000] [--queries 300] [--prepare]

Corpora are Debian's package descriptions and what benchmarks.performance.resample makes of their sentences. The model is the
fielded recipe with N = 128, trained on Debian for --seconds: real embeddings. Corpora, model, bundles and indexes of
the peers are made once and kept in --out (--prepare makes what is missing, on all cores, and ends). What is measured
is measured anew in every run, all of it in this one process on one core: it pins itself to one, with one thread for
OpenMP, OpenBLAS and numba.

Systems (benchmarks.performance.engines) are timed one query at a time, in rounds of 20 queries in which all take part; a ratio is
taken within a round, and its median over the rounds is reported with quartiles (benchmarks.performance.rounds). Encoding a query or
cutting it into words is part of no system's time. Every answer is held against brute force over all documents in
float64 (benchmarks.performance.truth): recall@10 of all systems, and of exact that rows and scores are equal. Queries are short and
held out of the corpus (descriptions of titles, first words of texts); Debian itself holds the documents they are of.

At the largest size also: k of 10, 100 and 1,000; queries of 3 to 1,000 words, runs of held out text; filters that
leave from 0.01 % to 100 % of the documents (a uniform field below a bound; evaluated before the clock starts, and timed
by themselves). Before anything else maps a bundle, four worker processes open it and answer, and their proportional set
size is read (benchmarks.performance.footprint). The physical limit is what an exact scan has to read, divided by the measured
bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness.lab import Lab
from benchmarks.harness.report import machine, seconds
from benchmarks.performance import engines
from benchmarks.performance.engines import Answer, Ask, Query, ready, together
from benchmarks.performance.footprint import bandwidth, folder_bytes, workers
from benchmarks.performance.prepare import DEBIAN, Kept
from benchmarks.performance.resample import (
    QUERY_WORDS,
    TERMS,
    Source,
    run_queries,
    short_queries,
    term_statistics,
)
from benchmarks.performance.retrieval_tables import held, plots, tables
from benchmarks.performance.rounds import WARM_UP, Timed, in_rounds
from benchmarks.performance.truth import Truth, brute_force, equal, mean_recall
from fullrank.bundle.catalog import Bundle, open_bundle
from fullrank.filters.query import matching, parse_filter

SIZES = f"{DEBIAN},10000,63000,250000,1000000"
KS = (10, 100, 1000)
SHARES = (0.0001, 0.001, 0.01, 0.1, 1.0)
_PACKAGES = ("fullrank", "numpy", "scipy", "numba", "faiss-cpu", "bm25s")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_TUNING = 100  # queries that HNSW's effort is chosen on
_CURVE = 40  # queries of a point of a curve
_WORKER_QUERIES = 300
_FILTERED = 9  # times that a filter is evaluated


@dataclass(frozen=True, eq=False)
class Setting:
    """A corpus with everything that answers on it."""

    name: str
    bundle: Bundle
    flat: Any
    hnsw: Any
    peer: Any
    peer_numpy: Any

    def systems(self, k: int = 10) -> dict[str, Ask]:
        """All systems for the first k."""
        found = engines.systems(self.bundle, self.flat, self.hnsw, self.peer, k)
        return found | {"bm25s, numpy": engines.bm25s(self.peer_numpy, k)}


class Run:
    """The measurement of all corpora."""

    def __init__(self, lab: Lab, kept: Kept, queries: int) -> None:
        self.lab, self.kept, self.count = lab, kept, queries
        self.source = kept.source()
        self.gigabytes_a_second = bandwidth()

    def corpus(self, name: str, *, curves: bool) -> dict[str, Any]:
        """All figures of one corpus."""
        path = self.kept.bundle(name)
        self.lab.report.say("workers", corpus=name)
        found: dict[str, Any] = {
            "corpus": name,
            "built": self.kept.built(name),
            "bytes": folder_bytes(path),
            "memory": workers(
                path, short_queries(self.source, _WORKER_QUERIES, self._seed(2)), self.lab.scratch
            ),
        }
        bundle = open_bundle(path, verify=False)
        bundle.retriever.warm()
        self.lab.report.say("measuring", corpus=name, documents=len(bundle.documents))
        setting = Setting(
            name,
            bundle,
            engines.flat_index(bundle.encoded.dense),
            self.kept.hnsw(name),
            self.kept.bm25s(name, "numba"),
            self.kept.bm25s(name, "numpy"),
        )
        found["documents"] = len(bundle.documents)
        found["bytes_per_document"] = round(found["bytes"]["all"] / len(bundle.documents), 1)
        found["terms_a_document"] = round(len(bundle.encoded.indices) / len(bundle.documents), 2)
        found |= self.main(setting)
        if curves:
            found["curves"] = {
                "k": self.by_k(setting),
                "words": self.by_words(setting),
                "share": self.by_share(setting),
            }
        return found

    def _seed(self, which: int) -> int:
        """Queries of each purpose have a seed of their own."""
        return 10 * self.kept.seed + which

    def _short(self, setting: Setting, number: int, which: int) -> list[Query]:
        return ready(setting.bundle.model, short_queries(self.source, number, self._seed(which)))

    def main(self, setting: Setting) -> dict[str, Any]:
        """All systems on short queries, k = 10."""
        tuning = ready(
            setting.bundle.model,
            short_queries(self.source, _TUNING, self._seed(1), tuning=True),
        )
        effort = engines.choose_effort(setting.hnsw, engines.dense(setting.flat), tuning)
        queries = self._short(setting, self.count, 0)
        timed = self._timed(f"{setting.name}: short queries", setting.systems(), queries, tuning)
        truths = self._truths(setting, queries, 10)
        exact = timed.answers["exact"]
        fused = [name for name in timed.answers if name.startswith("fusion")]
        recalls = _recalls(timed, truths, 10)
        peer = min(("bm25s", "bm25s, numpy"), key=lambda name: float(timed.seconds[name].sum()))
        ratios = {
            "exact_over_flat_scan": timed.ratio("exact", "flat"),
            "fast_speedup_over_exact": timed.ratio("exact", "fast"),
            "fast_over_bm25s": timed.ratio("fast", peer),
            "fast_over_hnsw": timed.ratio("fast", "hnsw"),
            "fast_over_fusion": timed.ratio("fast", "fusion"),
        }
        return {
            **{name: ratio and ratio["median"] for name, ratio in ratios.items()},
            "certified_share": _share(a.ranking is not None and a.ranking.certified for a in exact),
            "equal_to_brute_force": _share(map(_equal, exact, truths)),
            "fast_recall_at_10": recalls.get("fast"),
            "fusion_recall_at_10": max(recalls[name] for name in fused),
            "recall_at_10": recalls,
            "ratios": ratios,
            "milliseconds": {name: timed.figures(name) for name in timed.seconds},
            "raw_milliseconds": {
                name: np.round(seconds * 1e3, 4).tolist() for name, seconds in timed.seconds.items()
            },
            "bm25s_backend": setting.peer.backend if peer == "bm25s" else "numpy",
            "hnsw": effort,
            "limit": self._limit(setting, queries, float(np.median(timed.seconds["exact"]))),
            "encoding_ms": self._encoding(setting, queries),
        }

    def _timed(
        self,
        what: str,
        systems: dict[str, Ask],
        queries: Sequence[Query],
        warm_up: Sequence[Query],
    ) -> Timed[Answer]:
        with self.lab.report.stage(what, len(queries)) as stage:
            return in_rounds(systems, queries, warm_up[:WARM_UP], advance=stage.advance)

    def _truths(
        self, setting: Setting, queries: Sequence[Query], k: int, matching: Any = None
    ) -> list[Truth]:
        with self.lab.report.stage("brute force", len(queries)) as stage:
            return brute_force(
                setting.bundle.encoded,
                together(queries),
                k,
                matching=matching,
                advance=stage.advance,
            )

    def _encoding(self, setting: Setting, queries: Sequence[Query]) -> dict[str, float]:
        """From a text to a query that is ready to be asked."""
        model = setting.bundle.model
        encode: dict[str, Callable[[Query], object]] = {
            "encoding": lambda query: model.encode_queries([query.text])
        }
        return in_rounds(encode, queries, queries[:WARM_UP]).figures("encoding")

    def _limit(self, setting: Setting, queries: Sequence[Query], exact_s: float) -> dict[str, Any]:
        """What an exact answer has to read at least once, and how long that takes at full bandwidth.

        The dense part, the bias, and the postings of all words of the query; words that cannot
        change the answer may be left out, so the limit without any is said too.
        """
        files, encoded = setting.bundle.manifest.files, setting.bundle.encoded
        indexed = "index/codes.npy" in files
        count, width = encoded.dense.shape
        # Codes of a byte and a scale each, or the float32 truth; and the bias.
        scanned = count * ((width + 4 if indexed else 4 * width) + 4)
        frequency = np.bincount(encoded.indices, minlength=encoded.width)
        entries = float(np.mean([frequency[query.encoded.indices].sum() for query in queries]))
        # A row of int32, and an impact of a byte or a weight of float32.
        postings = entries * (5 if indexed else 8)
        rate = self.gigabytes_a_second["best"] * 1e9
        least, all_ = scanned / rate, (scanned + postings) / rate
        return {
            "scanned_bytes": scanned,
            "postings_bytes": round(postings),
            "gigabytes_a_second": self.gigabytes_a_second["best"],
            "dense_ms": round(least * 1e3, 4),
            "with_all_postings_ms": round(all_ * 1e3, 4),
            "exact_over_dense_limit": round(exact_s / least, 3),
            "exact_over_limit": round(exact_s / all_, 3),
        }

    # -- curves -------------------------------------------------------------------------------

    def _point(
        self,
        what: str,
        setting: Setting,
        systems: dict[str, Ask],
        queries: Sequence[Query],
        warm_up: Sequence[Query],
        k: int,
        matching: Any = None,
    ) -> dict[str, Any]:
        timed = self._timed(what, systems, queries, warm_up)
        truths = self._truths(setting, queries, k, matching)
        exact = timed.answers["exact"]
        return {
            "milliseconds": {name: timed.figures(name) for name in timed.seconds},
            "recall": _recalls(timed, truths, k),
            "certified_share": _share(a.ranking is not None and a.ranking.certified for a in exact),
            "equal_to_brute_force": _share(map(_equal, exact, truths)),
        }

    def by_k(self, setting: Setting) -> dict[str, Any]:
        """The first k of 10, 100, 1,000."""
        queries = self._short(setting, min(_CURVE, self.count), 3)
        found = {}
        for k in KS:
            if k > len(setting.bundle.documents):
                continue
            systems = setting.systems(k)
            warm_up = self._short(setting, WARM_UP, 1)
            found[str(k)] = self._point(f"k = {k}", setting, systems, queries, warm_up, k)
        return found

    def by_words(self, setting: Setting) -> dict[str, Any]:
        """Queries of 3 to 1,000 words."""
        found = {}
        for length in QUERY_WORDS:
            texts = run_queries(
                self.source, min(_CURVE, self.count) + WARM_UP, length, self._seed(4)
            )
            queries = ready(setting.bundle.model, texts)
            found[str(length)] = self._point(
                f"{length} words", setting, setting.systems(), queries[WARM_UP:], queries, 10
            )
        return found

    def by_share(self, setting: Setting) -> dict[str, Any]:
        """Filters that leave 0.01 % to 100 % of the documents: ours alone, the peers have none or another kind."""
        if setting.name == DEBIAN:
            return {}
        draws = self._draws(setting)
        columns = setting.bundle.columns
        queries = self._short(setting, min(_CURVE, self.count), 5)
        retriever, found = setting.bundle.retriever, {}
        for share in SHARES:
            condition = {"draw": {"lt": share}}
            took = [
                seconds(lambda c=condition: matching(parse_filter(c), columns))
                for _ in range(_FILTERED)
            ]
            fits = matching(parse_filter(condition), columns)
            if not np.array_equal(fits, draws < share):
                raise RuntimeError(f"the filter {condition} lets other documents through")
            systems = {
                mode: engines.ours(retriever, mode, deleted=~fits) for mode in retriever.modes
            }
            found[f"{share:g}"] = {
                "matching": int(fits.sum()),
                "filter_ms": round(statistics.median(took) * 1e3, 4),
                **self._point(
                    f"{share:.2%} match",
                    setting,
                    systems,
                    queries,
                    self._short(setting, WARM_UP, 1),
                    10,
                    fits,
                ),
            }
        return found

    def _draws(self, setting: Setting) -> Any:
        """The uniform field of every document, by row."""
        return np.array([line["draw"] for line in self.kept.lines(setting.name)])


def _recalls(timed: Timed[Answer], truths: Sequence[Truth], k: int) -> dict[str, float]:
    return {
        name: mean_recall([answer.rows for answer in answers], truths, k)
        for name, answers in timed.answers.items()
    }


def _equal(answer: Answer, truth: Truth) -> bool:
    return answer.ranking is not None and equal(answer.ranking, truth)


def _share(facts: Any) -> float:
    found = list(facts)
    return sum(found) / len(found)


def compared_terms(kept: Kept, source: Source, name: str) -> dict[str, Any]:
    """How the source's words and lengths compare with a resampled corpus's; kept beside it."""
    path = kept.corpus(int(name)) / "statistics.json"
    if not path.is_file():
        path.write_text(json.dumps(term_statistics(kept.lines(name))), "utf-8")
    return {"source": term_statistics(source.kept), "corpus": orjson.loads(path.read_bytes())}


def _sizes(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name != DEBIAN and not (name.isdecimal() and int(name) >= 1000):
            raise argparse.ArgumentTypeError(f"{name!r} is neither {DEBIAN} nor 1000 or more")
    return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    form = found.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the tables as Markdown")
    found.add_argument("--sizes", type=_sizes, default=_sizes(SIZES), help=f"default {SIZES}")
    found.add_argument("--queries", type=int, default=300, help="short queries; default 300")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument(
        "--terms", type=float, default=TERMS, help=f"distinct words a document; default {TERMS}"
    )
    found.add_argument("--seconds", type=float, default=60, help="of the fit; default 60")
    found.add_argument("--out", type=Path, help="folder of results; default out/retrieval")
    found.add_argument("--prepare", action="store_true", help="make what is missing, measure not")
    return found


def on_one_core() -> None:
    """Start anew with one thread a library, on one core. Libraries read these when they are loaded."""
    last = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})
    if any(os.environ.get(name) != "1" for name in _THREADS):
        environment = os.environ | dict.fromkeys(_THREADS, "1")
        command = [sys.executable, "-m", "benchmarks.performance.retrieval_corpus", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


def main() -> None:
    """Prepare, measure, tell. Exit code 1 when a bar of the largest corpus was not held."""
    given = parser().parse_args()
    if not given.prepare:
        on_one_core()
    given.set, given.fresh, given.systems = [], False, None
    with Lab("retrieval", given) as lab:
        lab.machine = machine(_PACKAGES)
        kept = Kept(lab.store.folder, given.seed, given.terms, given.seconds, lab.report)
        for name in given.sizes:
            kept.bundle(name)
            kept.hnsw(name)
            kept.bm25s(name, "numba")
        if given.prepare:
            return
        run = Run(lab, kept, given.queries)
        resampled = [name for name in given.sizes if name != DEBIAN]
        largest = max(resampled, key=int) if resampled else DEBIAN
        corpora = {name: run.corpus(name, curves=name == largest) for name in given.sizes}
        terms = compared_terms(kept, run.source, largest) if resampled else None
        bars = held(corpora[largest])
        lab.tell(
            tables(corpora, bars, terms),
            [],
            plots(corpora, lab.store.folder),
            bandwidth=run.gigabytes_a_second,
            corpora=corpora,
            term_statistics=terms,
            held=bars,
        )
    sys.exit(0 if bars["all"] else 1)


if __name__ == "__main__":
    main()
