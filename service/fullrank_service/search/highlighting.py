"""Highlight the hits of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullrank.encoding import Encoded
from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.query import listed
from fullrank.highlight import Highlight, highlights
from fullrank.live import View
from fullrank.live.part import LiveHit
from fullrank.live.segments import Selection, gather_in_model_features


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
    view: View, text: str, query: Encoded, hits: Sequence[LiveHit], asked: Highlight
) -> list[dict[str, Any]]:
    """Return the snippets of each hit by field, ready for JSON.

    Args:
        view: The view that found the hits.
        text: The query.
        query: The same query, encoded.
        hits: Hits of an answer.
        asked: What to mark.
    """
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
