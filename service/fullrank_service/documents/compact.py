"""Write live documents into a new version of their bundle, in a separate process; readers never wait.

The new version contains the remaining rows of the bundle, copied unchanged, and the added documents as they were
encoded. Its ``log_position`` says up to which operation of the log, so a worker that loads it replays only later ones.
Like every bundle it is written completely or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import golden, list_bundles, open_bundle, read_manifest, stream_bundle
from fullrank.bundle.manifest import GOLDEN, LogPosition
from fullrank.errors import BundleError
from fullrank.live import View
from fullrank.live.segments import words_of
from fullrank.progress import Progress, silent
from fullrank_service.documents.follow import contained, replayed
from fullrank_service.documents.sqlitelog import LogPlace

# Operations younger than this stay in the log, for workers that are slow to follow.
SETTLED_S = 60.0
_TUNING, _QUERY_WORDS, _SEED = 400, 8, 1


class NothingToCompact(BundleError):
    """The log has no operation that the bundle lacks."""


@dataclass(frozen=True)
class Compacted:
    """A new version, with the number of documents in it and in its parent, and the last operation in it."""

    path: Path
    parent: str
    documents: int
    before: int
    seq: int

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "version": self.path.name}


def compact(bundle: Path, place: LogPlace, progress: Progress = silent) -> Compacted:
    """Write a new version of a bundle that contains its live documents. Raises BundleError, LogError."""
    log = place.existing()
    if log is None:
        raise NothingToCompact(f"{place.name}: no live document was ever written")
    with closing(log):
        parent = open_bundle(bundle)
        followed = replayed(parent, log)
        position = LogPosition(log.id, followed.seq)
    view = followed.view
    if view.seq == followed.since:
        raise NothingToCompact(f"{parent.version}: it contains every operation of the log")
    if not len(view):
        raise BundleError(
            f"{parent.version}: every document is deleted, so the new version would be empty"
        )
    path = write_compacted(view, position, bundle.absolute().parent.parent, progress=progress)
    return Compacted(path, parent.version, len(view), len(parent.documents), position.seq)


def write_compacted(
    view: View,
    position: LogPosition,
    root: Path,
    *,
    created: datetime | None = None,
    progress: Progress = silent,
) -> Path:
    """Write the documents of a view, at least one, as a new version of its bundle, and return its folder.

    Args:
        position: of the log, up to which the view contains all operations.
        created: UTC time of the version; default: now.

    Raises:
        BundleError: it cannot be written.
    """
    parent = view.bundle
    stored = (parent.path / GOLDEN).read_text(encoding="utf-8")
    return stream_bundle(
        root,
        parent.name,
        model=view.encoder,
        batches=view.batches(),
        golden_queries=[answer.query for answer in golden.parse(stored)],
        card={
            "parent": parent.version,
            "parent_bundle_id": parent.bundle_id,
            "compacted": {
                "documents": len(view),
                "before": len(parent.documents),
                "seq": position.seq,
            },
            "trained": parent.card.get("trained", parent.card),
            "trained_at": parent.card.get("trained_at", parent.manifest.created),
        },
        sample_queries=_sample(view),
        created=created,
        log_position=position,
        second_stage=parent.second_stage,
        facts=view.facts(),
        floor=parent.manifest.floor,
        new_words=words_of(view.parts),
        progress=progress,
    )


def _sample(view: View) -> Sequence[str]:
    draw = np.random.default_rng(_SEED)
    store = view.base.store
    queries = []
    for row in np.sort(draw.choice(len(store), min(_TUNING, len(store)), replace=False)).tolist():
        words = view.bundle.model.query_text(store.fields(row)).split()
        first = int(draw.integers(max(1, len(words) - _QUERY_WORDS)))
        queries.append(" ".join(words[first : first + _QUERY_WORDS]))
    return [query for query in queries if query]


def trim(root: Path, name: str, place: LogPlace, settled_s: float = SETTLED_S) -> int:
    """Remove from the log the operations that every version of a name on disk contains; return how many."""
    log = place.existing()
    if log is None:
        return 0
    with closing(log):
        positions = [
            contained(read_manifest(info.path), log)
            for info in list_bundles(root)
            if info.name == name
        ]
        least = min(positions, default=0)
        return log.remove(name, least, settled_s) if least else 0
