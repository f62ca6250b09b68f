"""Compare exact and fast search with FAISS and bm25s on one core, from 10,000 to a million documents.

    python -m benchmarks.performance.retrieval [--json] [--sizes debian,10000,63000,250000,1000000]
                                           [--queries 300] [--prepare]

The corpora are Debian's package descriptions and corpora resampled from their sentences (resample.py). The model is
the fielded recipe with N = 128, trained on Debian for --seconds, so the embeddings are real. Corpora, model, bundles
and the peers' indexes are stored in --out; --prepare makes the missing ones on all cores and exits. Every run
measures everything again in this one process, pinned to one core, with one thread for OpenMP, OpenBLAS and numba.

All systems (retrieval_systems.py) are timed one query at a time, in rounds of 20 queries. A ratio is computed within a
round; the report gives its median and quartiles over the rounds. The time to encode a query or split it into words is
not counted. Every answer is compared with a float64 brute force over all documents (truth.py): recall@10 of all
systems, and equal rows and scores of exact. Queries are short and do not occur in the corpus (descriptions of titles,
first words of texts); Debian itself contains the documents that they come from.

The largest size also measures filters that match 0.01 % to 100 % of the documents (a uniform field below a bound,
evaluated before the clock starts and timed separately). Before this process maps a bundle, four worker processes open
it and answer queries, and their proportional set size is read (footprint.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.lab import Lab, basic_parser
from benchmarks.harness.report import machine, seconds
from benchmarks.performance import retrieval_systems
from benchmarks.performance.footprint import workers
from benchmarks.performance.resample import TERMS, short_queries
from benchmarks.performance.retrieval_inputs import DEBIAN, Kept
from benchmarks.performance.retrieval_report import held, largest, tables
from benchmarks.performance.retrieval_systems import (
    WARM_UP,
    Answer,
    Ask,
    Query,
    Timed,
    in_rounds,
    ready,
    together,
)
from benchmarks.performance.truth import Truth, brute_force, equal, mean_recall, recall_bounds
from fullrank.bundle import Bundle, open_bundle
from fullrank.filters.columns import Columns
from fullrank.filters.query import matching, parse_filter

SHARES = (0.0001, 0.001, 0.01, 0.1, 1.0)
_TUNING_QUERIES = 100  # choose the efSearch of HNSW; they are not timed
_CURVE_QUERIES = 40  # of each point of a curve
_MEMORY_QUERIES = 300  # that each worker answers before its memory is read
_FILTER_REPEATS = 9


@dataclass(frozen=True, eq=False)
class Setting:
    """A corpus and the systems that search it."""

    name: str
    bundle: Bundle
    flat: Any
    hnsw: Any
    peer: Any
    peer_numpy: Any

    def systems(self, k: int = 10) -> dict[str, Ask]:
        """Return all systems, each asked for the first k."""
        found = retrieval_systems.systems(self.bundle, self.flat, self.hnsw, self.peer, k)
        return found | {"bm25s, numpy": retrieval_systems.bm25s(self.peer_numpy, k)}


class Measurement:
    """Measure corpora one after another, in this process."""

    def __init__(self, lab: Lab, kept: Kept, queries: int) -> None:
        self.lab, self.kept, self.count = lab, kept, queries
        self.source = kept.source()

    def corpus(self, name: str, *, curves: bool) -> dict[str, Any]:
        """Measure one corpus; ``curves`` adds filters of several selectivities."""
        path = self.kept.bundle(name)
        self.lab.report.log("workers", corpus=name)
        found: dict[str, Any] = {
            "corpus": name,
            "built": self.kept.built(name),
            "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
            "memory": workers(
                path, short_queries(self.source, _MEMORY_QUERIES, self._seed(2)), self.lab.scratch
            ),
        }
        bundle = open_bundle(path, verify=False)
        bundle.retriever.warm()
        self.lab.report.log("measuring", corpus=name, documents=len(bundle.documents))
        setting = Setting(
            name,
            bundle,
            retrieval_systems.flat_index(bundle.encoded.whole().dense),
            self.kept.hnsw(name),
            self.kept.bm25s(name, "numba"),
            self.kept.bm25s(name, "numpy"),
        )
        found["documents"] = len(bundle.documents)
        found["bytes_per_document"] = round(found["bytes"] / len(bundle.documents), 1)
        found["terms_a_document"] = round(bundle.encoded.n_entries / len(bundle.documents), 2)
        found |= self.main(setting)
        if curves:
            found["curves"] = {
                "share": self.by_share(setting),
            }
        return found

    def _seed(self, which: int) -> int:
        """Give the queries of each purpose their own seed."""
        return 10 * self.kept.seed + which

    def _short(self, setting: Setting, number: int, which: int) -> list[Query]:
        return ready(setting.bundle.model, short_queries(self.source, number, self._seed(which)))

    def main(self, setting: Setting) -> dict[str, Any]:
        """Measure all systems on short queries, k = 10."""
        tuning = ready(
            setting.bundle.model,
            short_queries(self.source, _TUNING_QUERIES, self._seed(1), tuning=True),
        )
        effort = retrieval_systems.choose_effort(
            setting.hnsw, retrieval_systems.dense(setting.flat), tuning
        )
        queries = self._short(setting, self.count, 0)
        timed = self._timed(f"{setting.name}: short queries", setting.systems(), queries, tuning)
        truths = self._truths(setting, queries, 10)
        exact = timed.answers["exact"]
        recalls = _recalls(timed, truths, 10)
        low = high = None
        if "fast" in recalls:
            answers = [answer.rows for answer in timed.answers["fast"]]
            low, high = recall_bounds(answers, truths, 10)
        peer = min(("bm25s", "bm25s, numpy"), key=lambda name: float(timed.seconds[name].sum()))
        ratios = {
            "exact_over_flat_scan": timed.ratio("exact", "flat"),
            "flat_scan_over_fast": timed.ratio("flat", "fast"),
            "fast_speedup_over_exact": timed.ratio("exact", "fast"),
            "fast_over_bm25s": timed.ratio("fast", peer),
            "fast_over_hnsw": timed.ratio("fast", "hnsw"),
        }
        return {
            **{name: ratio and ratio["median"] for name, ratio in ratios.items()},
            "certified_share": _share(a.ranking is not None and a.ranking.certified for a in exact),
            "equal_to_brute_force": _share(map(_equal, exact, truths)),
            "fast_recall_at_10": recalls.get("fast"),
            "fast_recall_at_10_low": low,
            "fast_recall_at_10_high": high,
            "recall_at_10": recalls,
            "ratios": ratios,
            "milliseconds": {name: timed.figures(name) for name in timed.seconds},
            "bm25s_backend": setting.peer.backend if peer == "bm25s" else "numpy",
            "hnsw": effort,
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
        self,
        setting: Setting,
        queries: Sequence[Query],
        k: int,
        matching: npt.NDArray[np.bool_] | None = None,
    ) -> list[Truth]:
        with self.lab.report.stage("brute force", len(queries)) as stage:
            return brute_force(
                setting.bundle.encoded.whole(),
                together(queries),
                k,
                matching=matching,
                advance=stage.advance,
            )

    # -- curves -------------------------------------------------------------------------------

    def _point(
        self,
        what: str,
        setting: Setting,
        systems: dict[str, Ask],
        queries: Sequence[Query],
        warm_up: Sequence[Query],
        k: int,
        matching: npt.NDArray[np.bool_] | None = None,
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

    def by_share(self, setting: Setting) -> dict[str, Any]:
        """Measure filters that match 0.01 % to 100 % of the documents; the peers have no such filter."""
        if setting.name == DEBIAN:
            return {}
        draws = self._draws(setting)
        columns = setting.bundle.columns
        queries = self._short(setting, min(_CURVE_QUERIES, self.count), 5)
        retriever, found = setting.bundle.retriever, {}
        for share in SHARES:
            condition = {"draw": {"lt": share}}
            took = [seconds(partial(_evaluate, condition, columns)) for _ in range(_FILTER_REPEATS)]
            fits = matching(parse_filter(condition), columns)
            if not np.array_equal(fits, draws < share):
                raise RuntimeError(
                    f"the filter {condition} matches other documents than its definition"
                )
            systems = {
                mode: retrieval_systems.ours(retriever, mode, deleted=~fits)
                for mode in retriever.modes
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

    def _draws(self, setting: Setting) -> npt.NDArray[np.float64]:
        """Return the uniformly drawn field of every document, by row."""
        return np.array([line["draw"] for line in self.kept.lines(setting.name)])


def _evaluate(condition: dict[str, Any], columns: Columns) -> npt.NDArray[np.bool_]:
    return matching(parse_filter(condition), columns)


def _recalls(timed: Timed[Answer], truths: Sequence[Truth], k: int) -> dict[str, float]:
    return {
        name: mean_recall([answer.rows for answer in answers], truths, k)
        for name, answers in timed.answers.items()
    }


def _equal(answer: Answer, truth: Truth) -> bool:
    return answer.ranking is not None and equal(answer.ranking, truth)


def _share(facts: Iterable[bool]) -> float:
    found = list(facts)
    return sum(found) / len(found)


SIZES = f"{DEBIAN},10000,63000,250000,1000000"
_PACKAGES = ("fullrank", "numpy", "scipy", "numba", "faiss-cpu", "bm25s")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def _sizes(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name != DEBIAN and not (name.isdecimal() and int(name) >= 1000):
            raise argparse.ArgumentTypeError(
                f"{name!r} must be {DEBIAN} or a number of at least 1000"
            )
    return found


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    found = basic_parser(__doc__, 60)
    found.add_argument("--sizes", type=_sizes, default=_sizes(SIZES), help=f"default {SIZES}")
    found.add_argument("--queries", type=int, default=300, help="short queries; default 300")
    found.add_argument("--prepare", action="store_true", help="make what is missing and exit")
    return found


def on_one_core(module: str) -> None:
    """Restart a module on one core with one thread per library; libraries read the variables at import."""
    last = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})
    if any(os.environ.get(name) != "1" for name in _THREADS):
        environment = os.environ | dict.fromkeys(_THREADS, "1")
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


def main() -> None:
    """Prepare, measure and report; exit 1 if a bar is missed."""
    given = parser().parse_args()
    if not given.prepare:
        on_one_core("benchmarks.performance.retrieval")
    with Lab("retrieval", given) as lab:
        lab.machine = machine(_PACKAGES)
        kept = Kept(lab.store.folder, given.seed, TERMS, given.seconds, lab.report)
        for name in given.sizes:
            kept.bundle(name)
            kept.hnsw(name)
            kept.bm25s(name, "numba")
        if given.prepare:
            return
        run = Measurement(lab, kept, given.queries)
        most = largest(given.sizes)
        corpora = {name: run.corpus(name, curves=name == most) for name in given.sizes}
        bars = held(corpora)
        lab.tell(
            tables(corpora, bars),
            corpora=corpora,
            held=bars,
        )
    sys.exit(0 if bars["all"] else 1)


if __name__ == "__main__":
    main()
