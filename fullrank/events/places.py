"""Where a service keeps the log and the key of its pseudonyms, and for how long: the defaults of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER, KEY = ".events", ".events.key"
DAYS, MEGABYTES = 90, 10_000
SHRINK_TO = 0.9
"""A service removes the oldest segments beyond this share of the megabytes."""


class Places(NamedTuple):
    """Where they are.

    Attributes:
        folder: Of the log.
        key: File of the key. It need not exist.
    """

    folder: Path
    key: Path


def places(
    bundles: Path,
    documents: Path | None = None,
    folder: Path | None = None,
    key: Path | None = None,
) -> Places:
    """Return where a service that has these settings keeps its log and its key.

    Args:
        bundles: FULLRANK_BUNDLES.
        documents: FULLRANK_DOCUMENTS, None if unset; so the others.
        folder: FULLRANK_EVENTS_FOLDER.
        key: FULLRANK_EVENTS_KEY.

    Example:
        >>> places(Path("bundles")).key.as_posix()
        'bundles/.events.key'
    """
    beside = bundles if documents is None else documents.parent
    return Places(folder or beside / FOLDER, key or beside / KEY)
