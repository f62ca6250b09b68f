"""Hits as an answer shows them: stored fields, explanations, marked words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import orjson

from fullrank.live import View
from fullrank.search.part import Query
from fullrank.search.searchable import Hit, explained, highlighted
from fullrank_service.http.problems import too_large
from fullrank_service.search.request import RankRequest


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
        terms = [*request.model(view).query_terms(request.text)]
        if (
            request.key_filter is None
        ):  # else a completed word may be of documents that are not there
            terms += query.find_terms()
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
            explanation = explained(hit, query, terms, stage).explanation
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
        marked = highlighted(
            view.model, view.parts, request.text, query, found, request.asked.highlight.asked
        )
        for shown_hit, hit in zip(hits, marked, strict=True):
            shown_hit["highlight"] = hit.highlight
            take(len(orjson.dumps(shown_hit["highlight"])))
    return hits


def _fields(hit: Hit, names: Collection[str]) -> bytes:
    fields = hit.part.store.fields(hit.row)
    return orjson.dumps({name: value for name, value in fields.items() if name in names})
