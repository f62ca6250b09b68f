"""The steps that a peer of benchmarks.performance.training takes: queries, candidates and links, drawn as ours.

The file has the matrices of queries and documents, U and V at the start, and ``first_loss``, the loss of the first step
by our kernels; the peer has to print the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear import softmax_kernels
from fullrank_trainer.systems.linear.candidates import choose_candidates, places_of
from fullrank_trainer.systems.linear.margin import sample
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.training.learned import Arrays

BATCH = 512  # triples of a step of the margin form
_TRIPLES, _STEPS = 200_000, 64


def write_steps(
    path: Path, features: Features, train: TrainSettings, parameters: Parameters
) -> None:
    """Write the steps of a dense form, UᵀV alone.

    Args:
        path: of the file, .npz.
        features: the matrices.
        train: its ``loss`` decides which steps.
        parameters: at the start.
    """
    rng = np.random.default_rng(2)
    matrices = {f"{side}_{part}": getattr(rows, part)
                for side, rows in (("q", features.xq), ("d", features.xd.composed()))
                for part in ("indptr", "indices", "values")}  # fmt: skip
    make = _margin_steps if train.loss == "margin" else _softmax_steps
    steps: dict[str, Any] = {**matrices, **make(features, train, parameters, rng)}
    np.savez(path, U=parameters.U, V=parameters.V, rate=train.rate, **steps)


def _margin_steps(
    features: Features, train: TrainSettings, parameters: Parameters, rng: np.random.Generator
) -> Arrays:
    triples = sample(features.pairs, features, _TRIPLES, rng)
    queries, positives, negatives = (rows.astype(np.int64) for rows in triples)
    u = features.xq.take(queries[:BATCH]).matmul(parameters.U)
    near, far = (
        (u * features.xd.composed().take(rows[:BATCH]).matmul(parameters.V)).sum(1)
        for rows in (positives, negatives)
    )
    return {
        "queries": queries, "positives": positives, "negatives": negatives, "batch": np.array(BATCH),
        "first_loss": np.asarray(np.maximum(0, 1 - near + far).sum()),
    }  # fmt: skip


def _softmax_steps(
    features: Features, train: TrainSettings, parameters: Parameters, rng: np.random.Generator
) -> Arrays:
    pairs, found = features.pairs, []
    for _ in range(_STEPS):
        queries = np.sort(rng.choice(pairs.queries, train.batch, replace=False))
        starts, documents = pairs.relevant.take(queries)
        candidates = choose_candidates(
            pairs, queries, documents, features.documents, train.candidates, rng
        )
        found.append((queries, candidates, places_of(candidates, documents), np.diff(starts)))
    queries, candidates, links, degrees = zip(*found, strict=True)
    return {
        "queries": np.concatenate(queries), "step_queries": _starts(queries),
        "candidates": np.concatenate(candidates), "step_candidates": _starts(candidates),
        "links": np.concatenate(links), "step_links": _starts(links),
        "degrees": np.concatenate(degrees), "first_loss": _loss(features, parameters, *found[0]),
    }  # fmt: skip


def _starts(lists: tuple[Int64, ...]) -> Int64:
    return np.cumsum([0, *map(len, lists)])


def _loss(
    features: Features,
    parameters: Parameters,
    queries: Int64,
    candidates: Int64,
    links: Int64,
    degrees: Int64,
) -> npt.NDArray[np.floating]:
    """Return the softmax loss of a step before it is taken."""
    u = features.xq.take(queries).matmul(parameters.U)
    v = features.xd.composed().take(candidates).matmul(parameters.V)
    starts, losses = np.concatenate([[0], np.cumsum(degrees)]), np.empty(len(queries), np.float32)
    nothing = np.zeros(0, np.float32)
    softmax_kernels.softmax_gradient(
        np.ascontiguousarray(u @ v.T), nothing, starts, links, starts, links, nothing, losses
    )
    return np.asarray(np.mean(losses * np.sqrt(degrees)))
