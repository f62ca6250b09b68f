"""Golden queries: what a bundle answered when it was written, replayed when it is loaded.

The replay proves that featuriser, model and retrieval of this release still give the answers that
were evaluated, and it warms the mapped pages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.bundle.manifest import GOLDEN, canonical_json
from fullrank.errors import BundleError
from fullrank.model import Model
from fullrank.retrieval import Retriever

DEPTH = 10
# Another CPU sums float32 products in another order, so a loaded bundle may differ in the last
# digits of a score. Anything larger is a different model. On one machine replay is exact.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Answer:
    """One golden query with its top results, best first."""

    query: str
    ids: tuple[str, ...]
    scores: tuple[float, ...]


def answer(
    model: Model, retriever: Retriever, ids: Sequence[str], queries: Sequence[str]
) -> list[Answer]:
    """The top 10 of every query."""
    if not queries:
        return []
    rankings = retriever.search(model.encode_queries(queries), DEPTH)
    return [
        Answer(
            query,
            tuple(ids[int(row)] for row in ranking.rows),
            tuple(float(score) for score in ranking.scores),
        )
        for query, ranking in zip(queries, rankings, strict=True)
    ]


def dump(answers: Sequence[Answer]) -> str:
    """golden.jsonl: one line a query, doubles in their shortest exact spelling."""
    return "".join(
        canonical_json({"query": a.query, "ids": list(a.ids), "scores": list(a.scores)}) + "\n"
        for a in answers
    )


def parse(text: str) -> list[Answer]:
    """Read golden.jsonl. Raises BundleError with the line."""
    answers = []
    # Not splitlines(): that would also break at U+2028 and its kin inside a query.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            value = json.loads(line)
            query, ids, scores = value["query"], value["ids"], value["scores"]
            read = Answer(str(query), tuple(map(str, ids)), tuple(map(float, scores)))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise BundleError(f"{GOLDEN}: line {number}: {error}") from error
        if len(read.ids) != len(read.scores):
            raise BundleError(f"{GOLDEN}: line {number}: ids and scores differ in number")
        answers.append(read)
    return answers


def compare(expected: Sequence[Answer], found: Sequence[Answer], tolerance: float) -> None:
    """Raise BundleError at the first query whose answer differs.

    A score may differ by tolerance·max(1, |score|). An id may stand elsewhere only among results
    whose expected scores are that close, or drop out at the end against an equal.
    """
    for want, have in zip(expected, found, strict=True):
        if len(want.ids) != len(have.ids):
            raise _differs(want, f"{len(have.ids)} results, expected {len(want.ids)}")
        stored = dict(zip(want.ids, want.scores, strict=True))
        for rank, (id, score, reference) in enumerate(
            zip(have.ids, have.scores, want.scores, strict=True), start=1
        ):
            slack = tolerance * max(1.0, abs(reference))
            if not abs(score - reference) <= slack:
                raise _differs(want, f"rank {rank} scores {score!r}, expected {reference!r}")
            if id == want.ids[rank - 1]:
                continue
            if tolerance == 0 or abs(stored.get(id, want.scores[-1]) - score) > slack:
                raise _differs(want, f"rank {rank} is {id!r}, expected {want.ids[rank - 1]!r}")


def _differs(want: Answer, reason: str) -> BundleError:
    return BundleError(f"{GOLDEN}: query {want.query[:80]!r}: {reason}")
