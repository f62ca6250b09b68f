"""Nodes for LlamaIndex's query engines and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from fullrank import Bundle
from fullrank.integrations.source import Source


class FullrankRetriever(BaseRetriever):
    """Finds nodes in a bundle or a service; `aretrieve` searches on a thread.

    Args:
        at, key, text_field: As for `Source`.
        similarity_top_k: How many nodes.
        filter: Which documents may be found, as in docs/guides/search/filters.md.
        options: Those of LlamaIndex's `BaseRetriever`.

    Example:
        >>> retriever = FullrankRetriever("bundles/docs", similarity_top_k=4)
        >>> [found.node_id for found in retriever.retrieve("copy a file")]
        ['common/cp', …]
    """

    def __init__(
        self,
        at: Bundle | str | Path,
        *,
        key: str | None = None,
        text_field: str = "text",
        similarity_top_k: int = 4,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._source = Source(at, key=key, text_field=text_field)
        self._limit, self._filter = similarity_top_k, filter
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._source.search(query_bundle.query_str, self._limit, self._filter)
        # The model reads the text once, not again in each field of the metadata.
        return [
            NodeWithScore(
                node=TextNode(
                    id_=id,
                    text=text,
                    metadata=fields,
                    excluded_llm_metadata_keys=[
                        name for name, value in fields.items() if value == text
                    ],
                ),
                score=score,
            )
            for id, score, text, fields in found
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
