"""What the second stage reads of a collection's documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fullrank.encoding import Int32
from fullrank.models.contract import field_text
from fullrank.rerank.facts import NO_DATE, DocumentFacts, FactSettings, day_of
from fullrank_trainer.features.clicks import FIELD as CLICKED
from fullrank_trainer.features.corpus import Corpus

# A field is a date if at least this share of the documents has one, and no document another text there.
_MIN_DATED = 0.5


def fact_settings(corpus: Corpus) -> FactSettings:
    """Choose the fields: every text field, clicked text, and a date if the documents have one."""
    names = [*corpus.sources, *([] if CLICKED in corpus.sources else [CLICKED])]
    return FactSettings(tuple((name, (name,)) for name in names), date_field(corpus), CLICKED)


def date_field(corpus: Corpus) -> str:
    """Return the first stored field, by name, that holds ISO 8601 dates; "" without one."""
    documents = corpus.collection.documents
    dated: dict[str, int] = {}
    other: set[str] = set()
    for document in documents:
        for name, value in document.fields.items():
            if day_of(value) != NO_DATE:
                dated[name] = dated.get(name, 0) + 1
            elif value is not None:
                other.add(name)
    enough = max(1.0, _MIN_DATED * len(documents))
    return min((n for n, count in dated.items() if n not in other and count >= enough), default="")


def document_facts(corpus: Corpus, settings: FactSettings) -> DocumentFacts:
    """Read the documents of a collection with the clicked text and clicks of its training split.

    No text of a validation query is in it, so features of validation queries are those of queries that training
    never saw.
    """
    counts = click_counts(corpus)
    return DocumentFacts.of(list(_with_clicked_text(corpus)), settings, counts)


def click_counts(corpus: Corpus) -> Int32:
    """Return the number of training queries that led to each document, int32 (documents,)."""
    found = corpus.pairs.relevant.entries
    return np.bincount(found, minlength=len(corpus.collection.documents)).astype(np.int32)


def _with_clicked_text(corpus: Corpus) -> Iterator[Mapping[str, Any]]:
    """Yield the stored fields of each document and its clicked text.

    A document that is a query counts with its title, as in `fullrank_trainer.features.fields`.
    """
    collection = corpus.collection
    uses_titles = collection.documents_are_queries and "title" in corpus.sources
    texts = corpus.query_texts(["title"] if uses_titles else corpus.sources)
    clicked: list[list[str]] = [[] for _ in collection.documents]
    for query, rows in corpus.pairs.clicked.items():
        for row in rows.tolist():
            clicked[row].append(texts[query])
    for document, found in zip(collection.documents, clicked, strict=True):
        own = field_text(document.fields, [CLICKED])
        text = "\n".join([own, *found] if own else found)
        yield {**document.fields, CLICKED: text}
