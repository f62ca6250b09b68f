"""Documents for Haystack's pipelines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from haystack import Document, component, default_to_dict

from fullrank.integrations.source import Source


@component
class FullrankRetriever:
    """Finds documents in a bundle or a service; `run_async` searches on a thread.

    Args:
        at, key, text_field: As for `Source`; a pipeline that is saved needs a path or an address, and no key.
        top_k: How many documents.
        filters: Which documents may be found, as in docs/guides/search/filters.md.

    Example:
        >>> retriever = FullrankRetriever("bundles/docs", top_k=4)
        >>> [document.id for document in retriever.run("copy a file")["documents"]]
        ['common/cp', …]
    """

    def __init__(
        self,
        at: Any,
        *,
        key: str | None = None,
        text_field: str = "text",
        top_k: int = 10,
        filters: Mapping[str, Any] | None = None,
    ) -> None:
        self.at, self.text_field, self.top_k, self.filters = at, text_field, top_k, filters
        self._source = Source(at, key=key, text_field=text_field)

    def to_dict(self) -> dict[str, Any]:
        """Return what a saved pipeline keeps: every argument but the key."""
        names = ("text_field", "top_k", "filters")
        kept = {name: getattr(self, name) for name in names}
        return dict(default_to_dict(self, at=str(self.at), **kept))

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents; the arguments override those of the constructor."""
        found = self._source.search(query, top_k or self.top_k, filters or self.filters)
        documents = [
            Document(id=id, content=text, score=score, meta=fields)
            for id, score, text, fields in found
        ]
        return {"documents": documents}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """As `run`."""
        return await asyncio.to_thread(self.run, query, filters, top_k)
