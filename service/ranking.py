"""From a text to ranked documents, on a bounded pool of threads.

The event loop looks into the cache; a thread encodes what was not there, ranks, explains and reads
the stored fields. Every part of one answer comes from the one bundle it was given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle import Bundle
from fullrank.encoding import Encoded
from fullrank.explain import explain
from fullrank.model import TermShare
from service.cache import EmbeddingCache, Key
from service.errors import Overloaded
from service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Wish:
    """What to rank and what to return of it.

    exclude are document ids that must not be returned; unknown ones are ignored. fields None means
    every stored field.
    """

    text: str
    limit: int
    offset: int = 0
    fields: Collection[str] | None = None
    explain: bool = False
    exclude: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hits in order, ready for JSON; certified: provably the top of the full ranking."""

    hits: list[dict[str, Any]]
    certified: bool
    total: int


class Ranker:
    """The pool, its queue and the cache in front of it."""

    def __init__(
        self, cache: EmbeddingCache, metrics: Metrics, *, threads: int = 2, max_queue: int = 64
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rank")
        self._max_queue = max_queue
        self._in_flight = 0

    async def rank(self, bundle: Bundle, wish: Wish) -> Ranked:
        """Rank a bundle's documents for a text. Raises Overloaded when the queue is full."""
        if self._in_flight >= self._max_queue:
            raise Overloaded
        self._in_flight += 1
        self._metrics.queue.set(self._in_flight)
        try:
            key = cached = None
            if self._cache.on:
                model = bundle.model
                key = Key.of(bundle.bundle_id, wish.text, model.n_dense, model.n_sparse)
                cached = await self._cache.get(key)
            loop = asyncio.get_running_loop()
            started = time.perf_counter()
            encoded, ranked = await loop.run_in_executor(self._pool, _rank, bundle, wish, cached)
            self._metrics.ranking.observe(time.perf_counter() - started)
            if key is not None and cached is None:
                self._cache.put(key, encoded)
            return ranked
        finally:
            self._in_flight -= 1
            self._metrics.queue.set(self._in_flight)

    async def close(self) -> None:
        """Finish what runs, drop what waits, let the cache go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        await self._cache.close()


def _rank(bundle: Bundle, wish: Wish, cached: Encoded | None) -> tuple[Encoded, Ranked]:
    encoded = cached if cached is not None else bundle.model.encode_queries([wish.text])
    deleted = _mask(bundle, wish.exclude) if wish.exclude else None
    # Taken apart once, for all hits.
    terms = bundle.model.query_terms(wish.text) if wish.explain else None
    [ranking] = bundle.retriever.search(encoded, wish.limit, offset=wish.offset, deleted=deleted)
    hits = [
        {
            "id": bundle.documents.ids[row],
            "score": score,
            "fields": _chosen(bundle.documents.fields(row), wish.fields),
            "explanation": None
            if terms is None
            else _explained(bundle, terms, encoded, row, parts),
        }
        for row, score, *parts in zip(
            ranking.rows.tolist(),
            ranking.scores.tolist(),
            ranking.learned.tolist(),
            ranking.exact.tolist(),
            ranking.bias.tolist(),
            strict=True,
        )
    ]
    return encoded, Ranked(hits, bool(ranking.certified), int(ranking.total))


def _mask(bundle: Bundle, ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(bundle.documents), np.bool_)
    for id in ids:
        try:
            mask[bundle.documents.row(id)] = True
        except KeyError:
            continue
    return mask


def _chosen(fields: dict[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    if names is None:
        return fields
    return {name: value for name, value in fields.items() if name in names}


def _explained(
    bundle: Bundle, terms: Sequence[TermShare], query: Encoded, row: int, parts: list[float]
) -> dict[str, Any]:
    found = explain(terms, bundle.retriever, query, row)
    # The parts as they were ranked: they add up to the score to the last digit.
    learned, exact, bias = parts
    return {
        "learned": learned,
        "exact": exact,
        "bias": bias,
        "words": [
            {"word": word.word, "learned": float(word.learned), "exact": float(word.exact)}
            for word in found.words
        ],
    }
