"""One write of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A write to one document.

    Attributes:
        seq: Position in the log, ascending from 1.
        id: The document's id.
        fields: All fields of the document from now on; None deletes it.
    """

    seq: int
    id: str
    fields: Mapping[str, Any] | None
