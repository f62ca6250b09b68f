"""Golden queries: answers recorded when a bundle is written, replayed when it is loaded.

The replay proves that featuriser, model and retrieval of this release still give the answers that were evaluated. It
also loads the mapped pages that a search needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.bundle.manifest import GOLDEN, canonical_json
from fullrank.errors import BundleError
from fullrank.models.contract import Model
from fullrank.retrieval import Retriever
from fullrank.storage import strict_json

DEPTH = 10
# Another CPU sums float32 products in another order, which changes the last digits of a score. A larger difference
# means a different model. On one machine the replay is exact.
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
    """Format golden.jsonl: one line a query, floats with their shortest exact digits."""
    return "".join(
        canonical_json({"query": a.query, "ids": list(a.ids), "scores": list(a.scores)}) + "\n"
        for a in answers
    )


def parse(text: str) -> list[Answer]:
    """Parse golden.jsonl. Raises BundleError naming the line."""
    answers = []
    # splitlines() would also split at U+2028 inside a query.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            value = strict_json.parse(line)
            query, ids, scores = value["query"], value["ids"], value["scores"]
            read = Answer(str(query), tuple(map(str, ids)), tuple(map(float, scores)))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise BundleError(f"{GOLDEN}: line {number}: {error}") from error
        if len(read.ids) != len(read.scores):
            raise BundleError(f"{GOLDEN}: line {number}: ids and scores differ in number")
        answers.append(read)
    return answers


def compare(expected: Sequence[Answer], found: Sequence[Answer], tolerance: float) -> None:
    """Compare answers. Raises BundleError that names the query and the rank where one differs.

    A score may differ by tolerance·max(1, |score|). An id may change its rank only among results whose expected scores
    are that close, or be replaced at the end by one of an equal score.
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
