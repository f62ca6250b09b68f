"""Documents for LangChain's chains and agents."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from fullrank.integrations.source import Source


class FullrankRetriever(BaseRetriever):
    """Finds documents in a bundle or a service; `ainvoke` searches on a thread.

    Args:
        at, key, text_field: As for `Source`.
        k: How many documents.
        filter: Which documents may be found, as in docs/guides/search/filters.md.

    `invoke(query, k=…, filter=…)` overrides both for one call.

    Example:
        >>> retriever = FullrankRetriever(at="http://localhost:8000", k=4)
        >>> [document.id for document in retriever.invoke("copy a file")]
        ['common/cp', …]
    """

    at: Any
    key: str | None = None
    text_field: str = "text"
    k: int = 4
    filter: dict[str, Any] | None = None
    _source: Source

    def model_post_init(self, context: Any) -> None:
        """Open the bundle or the connections."""
        super().model_post_init(context)
        self._source = Source(self.at, key=self.key, text_field=self.text_field)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        chosen = {"k": self.k, "filter": self.filter} | options
        return [
            Document(id=id, page_content=text, metadata={**fields, "id": id, "score": score})
            for id, score, text, fields in self._source.search(query, chosen["k"], chosen["filter"])
        ]
