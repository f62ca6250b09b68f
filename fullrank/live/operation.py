"""One write of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """A write to one document.

    Attributes:
        seq: Position in the log, ascending from 1.
        id: The document's id.
        fields: All fields of the document from now on; None deletes it.
    """

    seq: int
    id: str
    fields: Mapping[str, Any] | None
