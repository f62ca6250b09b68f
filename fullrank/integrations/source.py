"""A bundle or a service, asked alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fullrank import Bundle, open_bundle
from fullrank.errors import FullrankError
from fullrank.search.complete import Candidate, Completions, Kind, folded_prefix
from fullrank.storage.documents import field_text

MAX_TITLES = 100_000


class Passage(NamedTuple):
    """A found document; `text` is what a language model should read of it."""

    id: str
    score: float
    text: str
    fields: dict[str, Any]


class Source:
    """Searches a bundle or a service. Threads may share it.

    Args:
        at: An open bundle, a bundle's folder, BUNDLES/NAME, or the address of a service ("http://…").
        key: API key of the service.
        text_field: The field that holds a document's text. Documents without it give all their other texts.

    Raises:
        FullrankError: There is no such bundle, or the address is none.
        ModuleNotFoundError: A service needs the extra `client`.
    """

    def __init__(
        self, at: Bundle | str | Path, *, key: str | None = None, text_field: str = "text"
    ) -> None:
        self.text_field = text_field
        self._bundle: Bundle | None = None
        if isinstance(at, str) and at.startswith(("http://", "https://")):
            from fullrank.client import Client

            self._client = Client(at, key=key)
        else:
            self._bundle = at if isinstance(at, Bundle) else open_bundle(at)

    def search(
        self, query: str, limit: int, filter: Mapping[str, Any] | None = None
    ) -> list[Passage]:
        """Return the best documents. The query's last word is taken as finished.

        Args:
            query: What to find; a blank query finds nothing.
            limit: How many documents, at least 1.
            filter: Which documents may be found, as in docs/guides/search/filters.md.

        Raises:
            FullrankError: The filter does not fit, or the service refused the request or cannot be reached.
        """
        if not query.strip():
            return []
        if self._bundle is not None:
            hits = self._bundle.search(query, limit, filter=filter)
            return [self._passage(hit.id, hit.score, hit.fields) for hit in hits]
        found = self._client.search(query, limit=limit, filter=filter, prefix="none")
        return [self._passage(hit["id"], hit["score"], hit["fields"]) for hit in found["hits"]]

    def document(self, id: str) -> dict[str, Any]:
        """Return the stored fields of a document. Raises FullrankError if there is none."""
        if self._bundle is not None:
            part = self._bundle.part
            if (row := part.row(id)) is None:
                raise FullrankError(f"there is no document {id!r}")
            return part.store.fields(row)
        return dict(self._client.get(id))

    def complete(self, prefix: str, limit: int) -> list[str]:
        """Complete what somebody is typing: titles of a bundle; a service adds what people asked."""
        if self._bundle is not None:
            return [found.text for found in self._titles.complete(prefix, limit)]
        return [found["text"] for found in self._client.complete(prefix, limit=limit)]

    @cached_property
    def _titles(self) -> Completions:
        assert self._bundle is not None
        store = self._bundle.part.store
        titles = (store.fields(row).get("title") for row in range(min(len(store), MAX_TITLES)))
        return Completions(
            Candidate(folded_prefix(title), title, Kind.TITLE, 0)
            for title in titles
            if isinstance(title, str)
        )

    def _passage(self, id: str, score: float, fields: Mapping[str, Any]) -> Passage:
        text = fields.get(self.text_field)
        if not isinstance(text, str):
            text = field_text(fields, [*fields])
        return Passage(id, score, text, dict(fields))
