"""The systems that retrieval is compared with, one function per system, and the rounds in which they are timed.

    exact, fast        Retriever.search over the bundle, mapped
    flat, HNSW         FAISS over the documents' dense parts alone
    bm25s              bm25s over the same words (fullrank.text); numba and numpy

Queries are encoded and split into words before the clock starts, for all systems. A round is a few queries that every
system answers, one system after another, in an order that rotates between rounds, so that other load on the machine
affects all alike. A ratio compares two systems over the queries of one round; the report gives the median and quartiles
over the rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import faiss
import numpy as np

from fullrank.bundle import Bundle
from fullrank.measures import Float64, Int64
from fullrank.models.contract import Model
from fullrank.retrieval import Mask, Ranking, Retriever
from fullrank.storage.encoding import Encoded, Float32, concatenate
from fullrank.text.words import words

Q = TypeVar("Q")
A = TypeVar("A")

ROUND = 20
WARM_UP = 10


@dataclass(frozen=True, eq=False)
class Timed(Generic[A]):
    """Answers and times of the systems.

    seconds  system → float64 (queries,)
    answers  system → an answer a query
    size     queries of a round
    """

    seconds: Mapping[str, Float64]
    answers: Mapping[str, list[A]]
    size: int

    def ratio(self, over: str, under: str) -> dict[str, float] | None:
        """Return the time of one system over that of another; None if one was not timed."""
        if over not in self.seconds or under not in self.seconds:
            return None
        a, b = (self._rounds(name) for name in (over, under))
        low, median, high = np.percentile(a / b, (25, 50, 75)).tolist()
        return {"median": _short(median), "q25": _short(low), "q75": _short(high)}

    def _rounds(self, name: str) -> Float64:
        """Return the seconds of each round, without an incomplete last one unless it is the only one."""
        seconds = self.seconds[name]
        whole = len(seconds) // self.size
        return seconds[: whole * self.size].reshape(whole, -1).sum(1) if whole else seconds

    def figures(self, name: str) -> dict[str, float]:
        """Return p50 and p99 in milliseconds, and queries per second."""
        return figures(self.seconds[name])


def figures(seconds: Float64) -> dict[str, float]:
    """Return p50 and p99 in milliseconds, and queries per second."""
    p50, p99 = np.percentile(seconds * 1e3, (50, 99)).tolist()
    return {
        "p50_ms": _short(p50),
        "p99_ms": _short(p99),
        "queries_per_second": _short(len(seconds) / float(seconds.sum())),
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def in_rounds(
    systems: Mapping[str, Callable[[Q], A]],
    queries: Sequence[Q],
    warm_up: Sequence[Q],
    *,
    size: int = ROUND,
    advance: Callable[[int], object] = lambda done: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed[A]:
    """Time every system on every query by ``clock``; ``warm_up`` is answered before the clock starts."""
    names = list(systems)
    seconds = {name: np.zeros(len(queries)) for name in names}
    answers: dict[str, list[A]] = {name: [] for name in names}
    for name in names:
        for query in warm_up:
            systems[name](query)
    size = max(1, min(size, len(queries)))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn, start in enumerate(range(0, len(queries), size)):
            stop = min(start + size, len(queries))
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                ask, took = systems[name], seconds[name]
                for i in range(start, stop):
                    began = clock()
                    answer = ask(queries[i])
                    took[i] = clock() - began
                    answers[name].append(answer)
            gc.collect()
            advance(stop - start)
    finally:
        if collecting:
            gc.enable()
    return Timed(seconds, answers, size)


_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
HNSW_RECALL = 0.95
"""HNSW's effort is the smallest that finds this share of the dense top 10."""


@dataclass(frozen=True, eq=False)
class Query:
    """One query: encoded (a batch of one), and its words."""

    text: str
    encoded: Encoded
    words: list[str]


@dataclass(frozen=True, eq=False)
class Answer:
    """Rows, best first; ``ranking`` for our own systems."""

    rows: Int64
    ranking: Ranking | None = None


Ask = Callable[[Query], Answer]


def ready(model: Model, texts: Sequence[str]) -> list[Query]:
    """Encode queries one at a time, each in its own memory."""
    return [Query(text, model.encode_queries([text]), words(text)) for text in texts]


def together(queries: Sequence[Query]) -> Encoded:
    """Join the queries to one batch."""
    return concatenate([query.encoded for query in queries])


def ours(retriever: Retriever, mode: str, k: int = 10, deleted: Mask | None = None) -> Ask:
    """Return our own search."""

    def ask(query: Query) -> Answer:
        ranking = retriever.search(query.encoded, k, deleted=deleted, mode=mode)[0]
        return Answer(ranking.rows, ranking)

    return ask


def dense(index: faiss.Index, k: int = 10) -> Ask:
    """Return FAISS, by u·v alone."""

    def ask(query: Query) -> Answer:
        return Answer(index.search(query.encoded.dense, k)[1][0])

    return ask


def flat_index(vectors: Float32) -> faiss.Index:
    """Return an index that scans every vector in float32: the naive dense part of an exact search."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    for start in range(0, len(vectors), 1 << 16):
        index.add(np.ascontiguousarray(vectors[start : start + (1 << 16)]))
    return index


def choose_effort(index: Any, exact: Ask, queries: Sequence[Query]) -> dict[str, Any]:
    """Set efSearch to the smallest that finds HNSW_RECALL of the dense top 10, on queries that are not timed."""
    wanted = [set(exact(query).rows.tolist()) for query in queries]
    found = 0.0
    for effort in _EFFORTS:
        index.hnsw.efSearch = effort
        shared = [
            len(w & set(dense(index)(q).rows.tolist()))
            for q, w in zip(queries, wanted, strict=True)
        ]
        found = float(np.mean(shared)) / 10
        if found >= HNSW_RECALL:
            break
    return {"efSearch": effort, "recall_of_dense_top_10": round(found, 4)}


def bm25s(peer: Any, k: int = 10) -> Ask:
    """Return bm25s on the backend that it was loaded with; a query without a known word finds nothing."""
    number: Mapping[str, int] = peer.vocab_dict

    def ask(query: Query) -> Answer:
        known = [number[word] for word in query.words if word in number]
        if not known:
            return Answer(np.zeros(0, np.int64))
        found = peer.retrieve(
            [known],
            k=min(k, int(peer.scores["num_docs"])),
            n_threads=1 if peer.backend == "numba" else 0,
            backend_selection=peer.backend,
            show_progress=False,
            return_as="tuple",
        )
        return Answer(found[0][0].astype(np.int64))

    return ask


def systems(
    bundle: Bundle, flat: faiss.Index, hnsw: faiss.Index, peer: Any, k: int = 10
) -> dict[str, Ask]:
    """Return all systems by their reported names."""
    own = {mode: ours(bundle.retriever, mode, k) for mode in bundle.retriever.modes}
    return own | {
        "flat": dense(flat, k),
        "hnsw": dense(hnsw, k),
        "bm25s": bm25s(peer, k),
    }
