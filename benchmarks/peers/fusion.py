"""BM25 and MiniLM fused: reciprocal ranks, and a weighted sum whose weight valid chooses.

    python -m benchmarks.peers.fusion --work DIR [--collection tldr/en] [--tuned --hours H]

DIR is that of benchmarks.peers.minilm, whose vectors (and, with --tuned, checkpoint) are used again. BM25 reads the
documents with their clicked text where queries are separate.

fusion-ranks      Σ 1 / (60 + rank) over the two rankings, each cut at 1,000 documents
fusion-weighted   w · (BM25 / its best of the query) + (1 - w) · cosine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks.peers import minilm
from benchmarks.peers.bm25 import fit_bm25
from benchmarks.peers.minilm import PACKAGES
from benchmarks.peers.protocol import (
    Float32,
    PeerData,
    PeerSystem,
    Scores,
    Settings,
    Trained,
    run,
    top_rows,
)
from fullrank_trainer.evaluation.evaluate import DEPTH

RANK_OFFSET = 60  # Cormack, Clarke and Büttcher, 2009
BM25 = {"k1": 0.9, "b": 0.75}  # the choice of valid for benchmarks.peers.bm25 on tldr/en
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)


def fuse_ranks(first: Float32, second: Float32) -> Float32:
    """Fuse two tables of scores (queries, documents) by reciprocal ranks; minus infinity if in neither ranking."""
    found = np.zeros(first.shape, np.float32)
    for scores in (first, second):
        for line, values in zip(found, scores, strict=True):
            rows = top_rows(values, DEPTH)
            line[rows] += (1 / (RANK_OFFSET + 1 + np.arange(len(rows)))).astype(np.float32)
    found[found == 0] = -np.inf
    return found


def fuse_weighted(lexical: Float32, cosines: Float32, weight: float) -> Float32:
    """Add two tables of scores (queries, documents), the lexical ones as a share of the best of their query."""
    known = np.where(np.isfinite(lexical), lexical, np.float32(0))
    best = known.max(axis=1, keepdims=True)
    shares = known / np.where(best > 0, best, 1)
    return (weight * shares + (1 - weight) * cosines).astype(np.float32)


def systems(given: argparse.Namespace) -> list[PeerSystem]:
    """Return the systems of this peer; both share one training of the two parts."""
    trained: dict[PeerData, tuple[Scores, Scores]] = {}

    def parts(data: PeerData) -> tuple[Scores, Scores]:
        if data not in trained:
            clicked = data.collection.queries is not None
            dense = minilm.fit_tuned if given.tuned else minilm.fit_zero_shot
            lexical = fit_bm25(data, BM25, clicked=clicked).score
            trained[data] = lexical, dense(data, {}, given=given).score
        return trained[data]

    def fit_ranks(data: PeerData, settings: Settings) -> Trained:
        lexical, cosines = parts(data)
        return Trained(lambda texts: fuse_ranks(lexical(texts), cosines(texts)))

    def fit_weighted(data: PeerData, settings: Settings) -> Trained:
        lexical, cosines = parts(data)
        weight = float(settings["weight"])
        return Trained(lambda texts: fuse_weighted(lexical(texts), cosines(texts), weight))

    trials = tuple({"weight": weight} for weight in WEIGHTS)
    return [
        PeerSystem("fusion-ranks", fit_ranks),
        PeerSystem("fusion-weighted", fit_weighted, trials),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    options = minilm.options()
    options.add_argument("--tuned", action="store_true", help="the fine-tuned MiniLM")
    given = options.parse_args(arguments)
    run("benchmarks.peers.fusion", systems(given), given, ("bm25s", *PACKAGES), arguments)


if __name__ == "__main__":
    main()
