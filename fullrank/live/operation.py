"""One write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """The document of an id is now this one; fields None: there is none any more.

    seq  where it stands in the log, ascending from 1
    """

    seq: int
    id: str
    fields: Mapping[str, Any] | None
