"""An independent form of clicked text, for comparison with what training counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fullrank.storage.documents import field_text
from fullrank_trainer.collection import Collection, relevant
from fullrank_trainer.collection.schema import choose_fields
from fullrank_trainer.features.fields import CLICKED


def with_clicks(collection: Collection, titles: Sequence[str] = ("title",)) -> Collection:
    """Add clicked text to the documents as a field, as a live document would have it.

    Args:
        collection: the collection.
        titles: if documents are the queries, the fields that count as a query's text.
    """
    if collection.queries is not None:
        texts = {query.id: query.text for query in collection.queries}
    else:
        texts = {d.id: field_text(d.fields, titles) for d in collection.documents}
    found: dict[str, list[str]] = {}
    for query, grades in collection.qrels("train").items():
        for document in relevant(grades):
            if not (collection.has_mates and document == query):
                found.setdefault(document, []).append(texts[query])
    documents = [
        replace(d, fields={**d.fields, CLICKED: "\n".join(found[d.id])}) if d.id in found else d
        for d in collection.documents
    ]
    return replace(collection, documents=documents, fields=choose_fields(documents))
