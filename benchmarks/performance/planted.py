"""A collection of any size whose links can be learned: a resampled corpus, and links that a planted model draws.

The planted model is f(q, d) = (U q)·(V d) + q·D d with RANK dimensions. U and V have standard normal rows, equal for
both sides up to a half of their variance, and D ~ |N(0, 1)| for a third of the words and 0 for the others; q and d are
unit tf-idf vectors. A query is 3 to 8 words in a row of a document's text. Each of its LINKS_A_QUERY links goes to the
document with the highest f among POOL: half of them drawn uniformly, half from the documents that have a random word of
the query. So both parts of the score can be learned, neither of them alone explains the links, and a part of the noise
stays: the pool. The last VALID queries are the validation split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson
from numba import njit, prange

from benchmarks.harness.derive import Link, write_splits
from benchmarks.harness.report import data_folder
from benchmarks.performance.resample import TERMS, read_source, write_corpus
from fullrank.storage.encoding import Float32, Int64, Rows
from fullrank.text.features import count_corpus, tfidf, tfidf_idf
from fullrank.text.words import words
from fullrank_trainer.systems.linear.kernels import dot_sparse

RANK, POOL, LINKS_A_QUERY, VALID = 16, 64, 10, 200
_BATCH = 1 << 14  # documents that are counted, and queries that are written, at once


@njit(nogil=True, cache=True)
def _random(state: np.uint64) -> np.uint64:
    """Return the next number of splitmix64."""
    z = state * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(parallel=True, nogil=True, cache=True)
def _draw(  # type: ignore[no-untyped-def]
    qp, qi, qv, u, dp, di, dv, v, starts, postings, D, seed, out
):
    """Draw the links of each query, int64 (queries, links)."""
    for q in prange(len(out)):
        a, b = qp[q], qp[q + 1]
        state = _random(np.uint64(seed) + np.uint64(q))
        for k in range(out.shape[1]):
            best, top = np.int64(0), -np.inf
            for p in range(POOL):
                state = _random(state + np.uint64(1))
                d = np.int64(state % np.uint64(len(v)))
                if p % 2 and b > a:
                    word = qi[a + np.int64((state >> np.uint64(8)) % np.uint64(b - a))]
                    count = starts[word + 1] - starts[word]
                    if count:
                        state = _random(state + np.uint64(1))
                        d = postings[starts[word] + np.int64(state % np.uint64(count))]
                score = dot_sparse(
                    qi[a:b], qv[a:b], di[dp[d] : dp[d + 1]], dv[dp[d] : dp[d + 1]], D
                )
                for n in range(u.shape[1]):
                    score += u[q, n] * v[d, n]
                if score > top:
                    best, top = d, score
            out[q, k] = best


def planted_model(words: int, seed: int) -> tuple[Float32, Float32, Float32]:
    """Return U and V, (words, RANK), and D, (words,)."""
    rng = np.random.default_rng(seed)
    scale = np.float32(RANK**-0.25)
    V = rng.standard_normal((words, RANK), np.float32)
    U = np.float32(0.5**0.5) * (V + rng.standard_normal((words, RANK), np.float32))
    D = np.abs(rng.standard_normal(words)) * (rng.random(words) < 1 / 3)
    return U * scale, V * scale, D.astype(np.float32)


def draw_links(queries: Rows, documents: Rows, seed: int) -> Int64:
    """Draw links by a planted model.

    Args:
        queries, documents: unit tf-idf vectors over one vocabulary.
        seed: of the planted model and of the pools.

    Returns:
        int64 (queries, LINKS_A_QUERY), rows of documents.
    """
    U, V, D = planted_model(documents.width, seed)
    u, v = queries.matmul(U), documents.matmul(V)
    by_word = documents.csr().tocsc()
    out = np.empty((len(queries), LINKS_A_QUERY), np.int64)
    _draw(
        queries.indptr, queries.indices, queries.values, u,
        documents.indptr, documents.indices, documents.values, v,
        by_word.indptr.astype(np.int64), by_word.indices.astype(np.int64), D, seed, out,
    )  # fmt: skip
    return out


def corpus_texts(folder: Path) -> Iterator[str]:
    """Yield the text of each document of a resampled corpus."""
    with (folder / "corpus.jsonl").open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)["text"]


def _queries(folder: Path, count: int, seed: int) -> list[str]:
    """Draw runs of 3 to 8 words of the documents, document after document."""
    rng = np.random.default_rng(seed)
    found: list[str] = []
    while len(found) < count:
        for text in corpus_texts(folder):
            if len(found) == count:
                break
            sequence = words(text)
            length = int(rng.integers(3, 9))
            start = int(rng.integers(0, max(1, len(sequence) - length)))
            found.append(" ".join(sequence[start : start + length]))
    return found


def planted_tfidf(columns: Sequence[Sequence[str]]) -> list[Rows]:
    """Return unit tf-idf vectors of each column of texts over one vocabulary; the last column is the documents."""
    counted = count_corpus(columns, processes=2)
    df = np.bincount(counted.columns[-1].indices, minlength=len(counted.words)).astype(np.int64)
    idf: Float32 = tfidf_idf(df, len(columns[-1]))
    return [tfidf(column, idf) for column in counted.columns]


def write_planted(folder: Path, documents: int, links: int, seed: int = 1) -> None:
    """Write a planted collection; a corpus of that many documents that is there already is kept."""
    if not (folder / "corpus.jsonl").is_file():
        source = read_source(data_folder() / "debian")
        stretch = source.stretch(TERMS, seed)
        for _ in write_corpus(source, folder, documents, seed=seed, stretch=stretch):
            pass
    texts = _queries(folder, max(2 * VALID, links // LINKS_A_QUERY), seed)
    queries, corpus = planted_tfidf([texts, list(corpus_texts(folder))])
    drawn = draw_links(queries, corpus, seed)
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(
            json.dumps({"_id": f"q{i:08}", "text": text}) + "\n" for i, text in enumerate(texts)
        )
    (folder / "qrels").mkdir(exist_ok=True)
    for split, first, last in (
        ("train", 0, len(texts) - VALID), ("valid", len(texts) - VALID, len(texts))
    ):  # fmt: skip
        with (folder / "qrels" / f"{split}.tsv").open("w") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for start in range(first, last, _BATCH):
                rows = drawn[start : min(start + _BATCH, last)].tolist()
                file.writelines(
                    f"q{start + i:08}\tr{d:09}\t1\n"
                    for i, row in enumerate(rows)
                    for d in sorted(set(row))
                )


PAGE_TERMS = 210
_LINKING, _TRAIN, _SEED = 1 / 3, 0.9, 1


def write_pages(folder: Path, documents: int) -> int:
    """Write a collection of pages and their links; return the number of links.

    The pages are resampled from debian, PAGE_TERMS different words each (about 2.2 kB). A third of them link others:
    ten links each, drawn by the planted model with the linking page as the query. Nine tenths of the links are for
    training, the rest is validation.
    """
    source = read_source(data_folder() / "debian")
    stretch = source.stretch(PAGE_TERMS, _SEED)
    corpus = folder / "pages"
    for _ in write_corpus(source, corpus, documents, seed=_SEED, stretch=stretch):
        pass
    (pages,) = planted_tfidf([list(corpus_texts(corpus))])
    rng = np.random.default_rng(_SEED)
    linking = np.sort(rng.choice(documents, round(_LINKING * documents), replace=False))
    drawn = draw_links(pages.take(linking), pages, _SEED)
    links: list[Link] = [
        (f"r{page:09}", f"r{target:09}")
        for page, targets in zip(linking.tolist(), drawn.tolist(), strict=True)
        for target in sorted(set(targets) - {page})
    ]
    order = rng.permutation(len(links)).tolist()
    train = round(_TRAIN * len(links))
    splits = {"train": order[:train], "valid": order[train:]}
    write_splits(corpus, folder, {name: [links[i] for i in rows] for name, rows in splits.items()})
    return len(links)
