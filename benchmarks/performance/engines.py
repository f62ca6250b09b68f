"""What retrieval is measured beside: one function a system, from one query that is ready to be asked to rows.

    exact, fast        Retriever.search over the bundle, mapped
    flat, HNSW         FAISS over the documents' dense parts alone
    bm25s              other people's BM25 over the same words (benchmarks.harness.peers); numba and numpy
    fusion             two truncated lists joined by reciprocal rank: HNSW's and bm25s's, as engines do
    fusion, own lists  the same, with our own exact-match part in place of bm25s

What a query has to be beforehand (encoded, cut into words) is made before the clock starts, for all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import scipy.sparse as sp

from fullrank.bundle.catalog import Bundle
from fullrank.encoding import Encoded, Float32, concatenate
from fullrank.measures import Int64
from fullrank.model import Model
from fullrank.retrieval import Mask, Ranking, Retriever
from fullrank.text.words import words

DEPTH = 100
"""Places of each list of a fusion."""
_RANK = 60  # the usual constant of reciprocal rank fusion
_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)
HNSW_RECALL = 0.95
"""HNSW looks as hard as it must for this share of the dense top 10."""


@dataclass(frozen=True, eq=False)
class Query:
    """One query, ready to be asked: encoded (of one), and its words."""

    text: str
    encoded: Encoded
    words: list[str]


@dataclass(frozen=True, eq=False)
class Answer:
    """Rows, best first; ``ranking`` where it is one of ours."""

    rows: Int64
    ranking: Ranking | None = None


Ask = Callable[[Query], Answer]


def ready(model: Model, texts: Sequence[str]) -> list[Query]:
    """Queries of texts, encoded one at a time into memory of their own."""
    return [Query(text, model.encode_queries([text]), words(text)) for text in texts]


def together(queries: Sequence[Query]) -> Encoded:
    """The queries as one batch."""
    return concatenate([query.encoded for query in queries])


def ours(retriever: Retriever, mode: str, k: int = 10, deleted: Mask | None = None) -> Ask:
    """Our own search."""

    def ask(query: Query) -> Answer:
        ranking = retriever.search(query.encoded, k, deleted=deleted, mode=mode)[0]
        return Answer(ranking.rows, ranking)

    return ask


def dense(index: faiss.Index, k: int = 10) -> Ask:
    """FAISS, by u·v alone."""

    def ask(query: Query) -> Answer:
        return Answer(index.search(query.encoded.dense, k)[1][0])

    return ask


def flat_index(vectors: Float32) -> faiss.Index:
    """Every vector is looked at, in float32: the naive dense half of an exact search."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    for start in range(0, len(vectors), 1 << 16):
        index.add(np.ascontiguousarray(vectors[start : start + (1 << 16)]))
    return index


def choose_effort(index: faiss.Index, exact: Ask, queries: Sequence[Query]) -> dict[str, Any]:
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
    """Other people's BM25, on the backend it was loaded with; a query without a known word finds nothing."""
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


def exact_match(documents: Encoded, k: int = 10) -> Ask:
    """Our own exact-match part alone, s·t."""
    postings = sp.csr_array(documents.csr().T)

    def ask(query: Query) -> Answer:
        matched = sp.csr_array(query.encoded.csr() @ postings)
        rows, scores = matched.indices, matched.data
        if len(scores) > k:
            best = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
            rows, scores = rows[best], scores[best]
        return Answer(rows[np.lexsort((rows, -scores))].astype(np.int64))

    return ask


def fused(lists: Sequence[Int64], k: int) -> Int64:
    """Reciprocal rank fusion: the sum over the lists of 1 / (60 + place), ties by row."""
    scores: dict[int, float] = {}
    for rows in lists:
        for place, row in enumerate(rows.tolist(), 1):
            if row >= 0:  # FAISS pads with -1
                scores[row] = scores.get(row, 0.0) + 1 / (_RANK + place)
    best = sorted(scores, key=lambda row: (-scores[row], row))
    return np.array(best[:k], np.int64)


def fusion(first: Ask, second: Ask, k: int = 10) -> Ask:
    """Two lists of DEPTH made one."""

    def ask(query: Query) -> Answer:
        return Answer(fused([first(query).rows, second(query).rows], k))

    return ask


def systems(
    bundle: Bundle, flat: faiss.Index, hnsw: faiss.Index, peer: Any, k: int = 10
) -> dict[str, Ask]:
    """All systems, by the names they are reported under."""
    depth = max(DEPTH, k)
    own = {mode: ours(bundle.retriever, mode, k) for mode in bundle.retriever.modes}
    second = bm25s(peer, depth)
    return own | {
        "flat": dense(flat, k),
        "hnsw": dense(hnsw, k),
        "bm25s": bm25s(peer, k),
        "fusion": fusion(dense(hnsw, depth), second, k),
        "fusion, own lists": fusion(dense(hnsw, depth), exact_match(bundle.encoded, depth), k),
    }
