"""Measure exact search, fast search and the peers on one corpus, with the curves over k, words and filters."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.lab import Lab
from benchmarks.harness.report import seconds
from benchmarks.performance import engines
from benchmarks.performance.engines import Answer, Ask, Query, ready, together
from benchmarks.performance.footprint import bandwidth, folder_bytes, workers
from benchmarks.performance.prepare import DEBIAN, Kept
from benchmarks.performance.resample import QUERY_WORDS, run_queries, short_queries
from benchmarks.performance.rounds import WARM_UP, Timed, in_rounds
from benchmarks.performance.truth import Truth, brute_force, equal, mean_recall, recall_bounds
from fullrank.bundle import Bundle, open_bundle
from fullrank.filters.columns import Columns
from fullrank.filters.query import matching, parse_filter

KS = (10, 100, 1000)
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
        found = engines.systems(self.bundle, self.flat, self.hnsw, self.peer, k)
        return found | {"bm25s, numpy": engines.bm25s(self.peer_numpy, k)}


class Measurement:
    """Measure corpora one after another, in this process."""

    def __init__(self, lab: Lab, kept: Kept, queries: int) -> None:
        self.lab, self.kept, self.count = lab, kept, queries
        self.source = kept.source()
        self.gigabytes_a_second = bandwidth()

    def corpus(self, name: str, *, curves: bool) -> dict[str, Any]:
        """Measure one corpus; ``curves`` adds the curves over k, words and filters."""
        path = self.kept.bundle(name)
        self.lab.report.log("workers", corpus=name)
        found: dict[str, Any] = {
            "corpus": name,
            "built": self.kept.built(name),
            "bytes": folder_bytes(path),
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
            engines.flat_index(bundle.encoded.whole().dense),
            self.kept.hnsw(name),
            self.kept.bm25s(name, "numba"),
            self.kept.bm25s(name, "numpy"),
        )
        found["documents"] = len(bundle.documents)
        found["bytes_per_document"] = round(found["bytes"]["all"] / len(bundle.documents), 1)
        found["terms_a_document"] = round(bundle.encoded.n_entries / len(bundle.documents), 2)
        found |= self.main(setting)
        if curves:
            found["curves"] = {
                "k": self.by_k(setting),
                "words": self.by_words(setting),
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
        effort = engines.choose_effort(setting.hnsw, engines.dense(setting.flat), tuning)
        queries = self._short(setting, self.count, 0)
        timed = self._timed(f"{setting.name}: short queries", setting.systems(), queries, tuning)
        truths = self._truths(setting, queries, 10)
        exact = timed.answers["exact"]
        fused = [name for name in timed.answers if name.startswith("fusion")]
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
            "fast_over_fusion": timed.ratio("fast", "fusion"),
        }
        return {
            **{name: ratio and ratio["median"] for name, ratio in ratios.items()},
            "certified_share": _share(a.ranking is not None and a.ranking.certified for a in exact),
            "equal_to_brute_force": _share(map(_equal, exact, truths)),
            "fast_recall_at_10": recalls.get("fast"),
            "fast_recall_at_10_low": low,
            "fast_recall_at_10_high": high,
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

    def _encoding(self, setting: Setting, queries: Sequence[Query]) -> dict[str, float]:
        """Time the encoding of a query text."""
        model = setting.bundle.model
        encode: dict[str, Callable[[Query], object]] = {
            "encoding": lambda query: model.encode_queries([query.text])
        }
        return in_rounds(encode, queries, queries[:WARM_UP]).figures("encoding")

    def _limit(self, setting: Setting, queries: Sequence[Query], exact_s: float) -> dict[str, Any]:
        """Estimate the bytes that an exact answer must read once, and the time at full bandwidth.

        These are the dense part, the bias and the posting lists of the query's words. A search may
        skip words that cannot change the answer, so the limit without posting lists is given too.
        """
        files, encoded = setting.bundle.manifest.files, setting.bundle.encoded.whole()
        indexed = "index/codes.npy" in files
        count, width = len(encoded), encoded.n_dense
        # One byte per dimension and a scale, or float32 vectors; and the bias.
        scanned = count * ((width + 4 if indexed else 4 * width) + 4)
        frequency = np.bincount(encoded.sparse.indices, minlength=encoded.sparse.width)
        entries = float(
            np.mean([frequency[query.encoded.sparse.indices].sum() for query in queries])
        )
        # An int32 row, and an impact of one byte or a float32 weight.
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

    def by_k(self, setting: Setting) -> dict[str, Any]:
        """Measure the first 10, 100 and 1,000 documents."""
        queries = self._short(setting, min(_CURVE_QUERIES, self.count), 3)
        found = {}
        for k in KS:
            if k > len(setting.bundle.documents):
                continue
            systems = setting.systems(k)
            warm_up = self._short(setting, WARM_UP, 1)
            found[str(k)] = self._point(f"k = {k}", setting, systems, queries, warm_up, k)
        return found

    def by_words(self, setting: Setting) -> dict[str, Any]:
        """Measure queries of 3 to 1,000 words."""
        found = {}
        for length in QUERY_WORDS:
            texts = run_queries(
                self.source, min(_CURVE_QUERIES, self.count) + WARM_UP, length, self._seed(4)
            )
            queries = ready(setting.bundle.model, texts)
            found[str(length)] = self._point(
                f"{length} words", setting, setting.systems(), queries[WARM_UP:], queries, 10
            )
        return found

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
