"""Peers: BM25 of another library, over the same words, judged by the same measures.

bm25s runs with its own defaults for k1, b and method on the words of Fullrank (fullrank.text.words.words; no stemming,
no stop words), so a difference comes from ranking and not from tokenisation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fullrank.measures import RANKING_MEASURES, Float64, Int64, ranking_measures
from fullrank.models.contract import field_text
from fullrank.text.words import words
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import DEPTH
from fullrank_trainer.evaluation.judgement import Judgement
from fullrank_trainer.features.corpus import text_fields

_BATCH = 512  # queries ranked at once
# Fewer queries do not repay the 20 s in which bm25s compiles itself.
_COMPILED_QUERIES = 1000


def bm25s_settings() -> dict[str, Any]:
    """Return the settings of the peer."""
    import bm25s

    model = bm25s.BM25()
    return {
        "version": bm25s.__version__,
        "method": model.method,
        "k1": model.k1,
        "b": model.b,
        "words": "fullrank.text.words.words, no stemming, no stop words",
    }


def bm25s_measures(
    collection: Collection,
    judgements: Sequence[Judgement],
    *,
    depth: int = DEPTH,
    threads: int | None = None,
) -> dict[str, Float64]:
    """Measure bm25s: RANKING_MEASURES per query, float64 (queries,) each, in the order of the judgements.

    All text fields of a document are joined. Rows that a judgement excludes are taken out of the
    ranking, which is made that much deeper; ties fall in the order of ids.
    """
    import bm25s

    sources = text_fields(collection)
    number: dict[str, int] = {}
    documents = [
        [number.setdefault(word, len(number)) for word in words(field_text(d.fields, sources))]
        for d in collection.documents
    ]
    backend = "numba" if len(judgements) >= _COMPILED_QUERIES else "numpy"
    peer = bm25s.BM25(backend=backend)
    peer.index(bm25s.tokenization.Tokenized(documents, number), show_progress=False)
    queries = _queries(collection, judgements, documents, number)
    deepest = depth + max((len(j.excluded) for j in judgements), default=0)
    values = {name: np.zeros(len(judgements)) for name in RANKING_MEASURES}
    # A query without a known word scores zero everywhere; bm25s accepts no empty query.
    asked = [i for i, query in enumerate(queries) if query]
    for start in range(0, len(asked), _BATCH):
        batch = asked[start : start + _BATCH]
        rows, scores = peer.retrieve(
            [queries[i] for i in batch],
            k=min(deepest, len(documents)),
            n_threads=threads or len(os.sched_getaffinity(0)),
            backend_selection=backend,
            show_progress=False,
        )
        for line, i in enumerate(batch):
            grades = _grades(rows[line].astype(np.int64), scores[line], judgements[i], depth)
            for name, value in ranking_measures(grades, judgements[i].grades).items():
                values[name][i] = value
    return values


def _queries(
    collection: Collection,
    judgements: Sequence[Judgement],
    documents: Sequence[list[int]],
    number: dict[str, int],
) -> list[list[int]]:
    """Map the words of the queries to the numbers of the index, without unknown words."""
    if collection.queries is None:
        place = {document.id: row for row, document in enumerate(collection.documents)}
        return [documents[place[judgement.query]] for judgement in judgements]
    text = {query.id: query.text for query in collection.queries}
    return [
        [number[word] for word in words(text[judgement.query]) if word in number]
        for judgement in judgements
    ]


def _grades(rows: Int64, scores: Float64, judgement: Judgement, depth: int) -> Int64:
    """Return the grade at every rank; a document with score zero is not ranked."""
    kept = (scores > 0) & ~np.isin(rows, judgement.excluded)
    rows, scores = rows[kept], scores[kept]
    rows = rows[np.lexsort((rows, -scores))][:depth]
    grade = dict(zip(judgement.relevant.tolist(), judgement.grades.tolist(), strict=True))
    return np.array([grade.get(row, 0) for row in rows.tolist()], np.int64)
