"""Rank all documents by the scores of a peer, measure the rankings, and time single queries.

A peer scores every document for a batch of queries; minus infinity means "not ranked". Ties fall in the order of rows,
as in Fullrank.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.data import Asked, PeerData
from fullrank.measures import RANKING_MEASURES, Float64, Int64, ranking_measures
from fullrank_trainer.evaluation.evaluate import DEPTH, evenly_spread
from fullrank_trainer.evaluation.judgement import Judgement
from fullrank_trainer.evaluation.trec import RunWriter

Float32 = npt.NDArray[np.float32]
Scores = Callable[[Sequence[str]], Float32]
"""Texts of B queries → float32 (B, documents)."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained peer.

    Attributes:
        score: scores all documents for queries.
        facts: further fields of the printed line; they replace measured ones of the same name.
    """

    score: Scores
    facts: Mapping[str, Any] = field(default_factory=dict)


TOP = 10  # documents that a timed query returns
_BATCH_CELLS = 1 << 22  # scores in memory: 16 MiB
_WARM_UP = 20


def top_rows(scores: Float32, depth: int) -> Int64:
    """Return the rows of the ``depth`` best of the scores (documents,), best first, ties by row."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > depth:
        last = np.partition(scores[candidates], len(candidates) - depth)[-depth]
        candidates = candidates[scores[candidates] >= last]
    order = np.argsort(-scores[candidates], kind="stable")[:depth]
    return candidates[order].astype(np.int64)


def measure(
    score: Scores, data: PeerData, asked: Asked, run: Path | None = None
) -> dict[str, Float64]:
    """Measure the rankings of a peer.

    Args:
        score: the trained peer.
        data: the collection.
        asked: the queries.
        run: file to write the rankings to as a TREC run.

    Returns:
        RANKING_MEASURES → float64 (queries,), in the order of the queries.
    """
    values = {name: np.zeros(len(asked.judgements)) for name in RANKING_MEASURES}
    ids = [document.id for document in data.collection.documents]
    step = max(1, min(256, _BATCH_CELLS // len(ids)))
    with RunWriter(run, "peer") if run is not None else nullcontext() as writer:
        for start in range(0, len(asked.judgements), step):
            scores = score(asked.texts[start : start + step])
            for offset, judgement in enumerate(asked.judgements[start : start + step]):
                found = np.array(scores[offset], np.float32)
                found[judgement.excluded] = -np.inf
                rows = top_rows(found, DEPTH)
                for name, value in ranking_measures(
                    _grades(rows, judgement), judgement.grades
                ).items():
                    values[name][start + offset] = value
                if writer is not None:
                    writer.write(judgement.query, [ids[row] for row in rows], found[rows])
    return values


def _grades(rows: Int64, judgement: Judgement) -> Int64:
    """Return the grade at every rank; zero if not relevant."""
    grade = dict(zip(judgement.relevant.tolist(), judgement.grades.tolist(), strict=True))
    return np.array([grade.get(row, 0) for row in rows.tolist()], np.int64)


@dataclass(frozen=True)
class QueryTime:
    """The median time from the text of one query to its ten best documents.

    Attributes:
        wall_ms: wall time.
        cpu_ms: processor time, which does not grow when other programs use the machine.
    """

    wall_ms: float
    cpu_ms: float


def query_time(score: Scores, texts: Sequence[str], count: int) -> QueryTime:
    """Time ``count`` queries, evenly spread, one after another."""
    chosen = evenly_spread(len(texts), count).tolist()
    for i in chosen[:_WARM_UP]:
        top_rows(score([texts[i]])[0], TOP)
    wall, cpu = [], []
    for i in chosen:
        began, used = time.perf_counter(), time.process_time()
        top_rows(score([texts[i]])[0], TOP)
        cpu.append(time.process_time() - used)
        wall.append(time.perf_counter() - began)
    return QueryTime(1e3 * statistics.median(wall), 1e3 * statistics.median(cpu))
