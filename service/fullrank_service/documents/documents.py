"""The documents that an app answers from: those of bundles and of a log (live.py), or others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fullrank.bundle import Bundle
from fullrank.live import View
from fullrank_service.documents.follow import Followed
from fullrank_service.documents.past import AsOf
from fullrank_service.documents.submission import Kept, Submission


class Stored(NamedTuple):
    """A document as it is stored.

    Attributes:
        fields: Its fields; None: there is no such document.
        seq: The last operation of the log that this contains.
    """

    fields: dict[str, Any] | None
    seq: int


class Documents(Protocol):
    """The documents of models; ``LiveDocuments`` describes the methods."""

    def start(self) -> None: ...
    async def close(self) -> None: ...
    async def view(self, bundle: Bundle, min_seq: int = 0) -> View: ...
    async def as_of(self, bundle: Bundle, seq: int | None, min_seq: int = 0) -> AsOf: ...
    async def stored(self, view: View, id: str) -> Stored: ...
    def views(self, name: str | None = None) -> Sequence[Followed]: ...
    async def write(self, submission: Submission) -> Kept: ...
    async def head(self, collection: str) -> int: ...
