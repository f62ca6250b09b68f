"""Hits as an answer shows them: stored fields, explanations, marked words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import orjson

from fullrank.encoding import Encoded, Float32
from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.query import listed
from fullrank.highlight import Highlight, highlights
from fullrank.live import View
from fullrank.rerank.stage import SecondStage
from fullrank.scoring import TermShare
from fullrank.search.part import Query
from fullrank.search.searchable import Hit, Selection, gather_in_model_features
from fullrank_service.http.problems import too_large
from fullrank_service.search.request import RankRequest


def check_highlight(columns: Columns, asked: Highlight, path: str) -> None:
    """Check the fields to highlight. Raises FilterError for one that is unknown or holds no text."""
    for place, name in enumerate(asked.fields):
        here = f"{path}.fields.{place}"
        if name in columns.refused:  # text too long for a column is text
            continue
        if name not in columns:
            known = listed({*columns.by_name, *columns.refused})
            raise FilterError(here, f"unknown field; known fields: {known}")
        kinds = columns[name].kinds
        if kinds and "keyword" not in kinds:
            raise FilterError(here, "this field holds no text")


def highlighted(
    view: View, text: str, query: Encoded, hits: Sequence[Hit], asked: Highlight
) -> list[dict[str, Any]]:
    """Return the snippets of each hit by field, ready for JSON, given the query as text and encoded."""
    if not hits:
        return []
    number = {id(part): i for i, part in enumerate(view.parts)}
    selected = Selection.of([(number[id(hit.part)], hit.row) for hit in hits])
    encoded = gather_in_model_features(view.parts, selected, view.model.n_sparse)
    documents = [hit.part.store.fields(hit.row) for hit in hits]
    return [
        {name: {"snippet": found.text, "spans": found.spans} for name, found in fields.items()}
        for fields in highlights(view.model, text, query, documents, encoded, asked)
    ]


def shown(
    view: View, request: RankRequest, query: Query, found: Sequence[Hit]
) -> list[dict[str, Any]]:
    """Return hits ready for JSON. Raises FilterError if they are larger than the request allows."""
    stage = view.bundle.second_stage
    # Once for all hits.
    terms = learned = None
    key: str | None = None
    if request.asked.explain or request.with_clicks:
        learned = view.bundle.click_parts
        if query.clicks is not None:
            key = query.key
        elif learned is not None:
            key = learned.key(request.text)
    if request.asked.explain:
        terms = [*request.model(view).query_terms(request.text), *query.find_terms()]
    names = request.asked.fields
    hits: list[dict[str, Any]] = []
    left = request.max_bytes

    def take(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise too_large("limit" if request.filling is None else "placements")

    for hit in found:
        # All fields of a hit are copied into the answer as they are stored.
        fields = hit.part.store.json(hit.row) if names is None else _fields(hit, names)
        take(len(fields))
        explanation = None
        if terms is not None:
            explanation = _explained(terms, query, hit, stage)
        if learned is not None:
            clicks = hit.part.clicks(learned, query, key, hit.row)
            explanation = {**(explanation or {}), "clicks": clicks._asdict()}
        if terms is not None:
            take(len(orjson.dumps(explanation)))
        hits.append(
            {
                "id": hit.id,
                "score": hit.score,
                "fields": orjson.Fragment(fields),
                "explanation": explanation,
                "rule": None,
                "highlight": None,
            }
        )
    if request.asked.highlight is not None:
        # Synonyms and completions of the last word are words of the query, too.
        text = " ".join([request.text, *(term.term for term in query.find_terms())])
        snippets = highlighted(view, text, query, found, request.asked.highlight.asked)
        for shown_hit, snippet in zip(hits, snippets, strict=True):
            take(len(orjson.dumps(snippet)))
            shown_hit["highlight"] = snippet
    return hits


def _fields(hit: Hit, names: Collection[str]) -> bytes:
    fields = hit.part.store.fields(hit.row)
    return orjson.dumps({name: value for name, value in fields.items() if name in names})


def _explained(
    terms: Sequence[TermShare], query: Encoded, hit: Hit, stage: SecondStage | None
) -> dict[str, Any]:
    found = hit.part.explain(terms, query, hit.row)
    return {
        # The parts of the ranking itself: they add up to the score to the last digit.
        "dense": hit.dense,
        "lexical": hit.lexical,
        "bias": hit.bias,
        "boost": hit.boost,
        "words": [
            {"word": word.word, "dense": float(word.dense), "lexical": float(word.lexical)}
            for word in found.words
        ],
        "clicks": None,
        "second_stage": second_score(stage, hit.features),
    }


def second_score(stage: SecondStage | None, features: Float32 | None) -> dict[str, Any] | None:
    """Split the score that reordered a hit, given its features, ready for JSON; None if it was not reordered."""
    if stage is None or features is None:
        return None
    found = stage.explain(features)
    split = [feature._asdict() for feature in found.features]
    return {"score": found.score, "base": found.base, "features": split}
