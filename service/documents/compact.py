"""Live documents written into a new version of their bundle, in a process of its own; readers never wait.

The new version holds the bundle's rows that are still there, copied as they are, and the added documents as they were
encoded, and says up to which operation of the log (``log_position``): whoever loads it replays only what came later.
Like every bundle it is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import golden
from fullrank.bundle.catalog import list_bundles, open_bundle, read_manifest, stream_bundle
from fullrank.bundle.manifest import GOLDEN, LogPosition
from fullrank.errors import BundleError
from fullrank.live import View
from fullrank.progress import Progress, silent
from service.documents.follow import contained, replayed
from service.documents.log import Log

# A worker that is slow to follow has read, by then, what is removed from the log.
_SETTLED_S = 60.0
_TUNING, _QUERY_WORDS, _SEED = 400, 8, 1


class NothingToCompact(BundleError):
    """The log holds nothing that the bundle lacks."""


@dataclass(frozen=True)
class Compacted:
    """A new version.

    documents  in it; before: in its parent; seq: the last operation in it
    """

    path: Path
    parent: str
    documents: int
    before: int
    seq: int

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "path": str(self.path), "version": self.path.name}


def compact(bundle: Path, log_path: Path, progress: Progress = silent) -> Compacted:
    """Write a new version of a bundle beside it, with its live documents in it.

    Raises NothingToCompact, BundleError, LogError; then nothing was changed.
    """
    log = Log.existing(log_path)
    if log is None:
        raise NothingToCompact(f"{log_path}: nothing was ever written")
    try:
        parent = open_bundle(bundle)
        followed = replayed(parent, log)
        position = LogPosition(log.id, followed.seq)
    finally:
        log.close()
    view = followed.view
    if view.seq == followed.since:
        raise NothingToCompact(f"{parent.version}: the log holds nothing that it lacks")
    if not len(view):
        raise BundleError(f"{parent.version}: no document would be left")
    asked = [a.query for a in golden.parse((bundle / GOLDEN).read_text(encoding="utf-8"))]
    path = stream_bundle(
        bundle.absolute().parent.parent,
        parent.name,
        model=view.encoder,
        batches=view.batches(),
        golden_queries=asked,
        card={
            "parent": parent.version,
            "parent_bundle_id": parent.bundle_id,
            "compacted": {
                "documents": len(view),
                "before": len(parent.documents),
                "seq": position.seq,
            },
            "trained": parent.card.get("trained", parent.card),
        },
        sample_queries=_sample(view),
        log_position=position,
        progress=progress,
    )
    return Compacted(path, parent.version, len(view), len(parent.documents), position.seq)


def _sample(view: View) -> Sequence[str]:
    """Words that follow one another in documents, drawn by a seed: what the fast mode is tuned with."""
    draw = np.random.default_rng(_SEED)
    store = view.base.store
    queries = []
    for row in np.sort(draw.choice(len(store), min(_TUNING, len(store)), replace=False)).tolist():
        words = view.bundle.model.query_text(store.fields(row)).split()
        first = int(draw.integers(max(1, len(words) - _QUERY_WORDS)))
        queries.append(" ".join(words[first : first + _QUERY_WORDS]))
    return [query for query in queries if query]


def trim(root: Path, name: str, log_path: Path, settled_s: float = _SETTLED_S) -> int:
    """Remove from the log what every version of a name on disk holds; how many operations went."""
    log = Log.existing(log_path)
    if log is None:
        return 0
    try:
        held = [
            contained(read_manifest(info.path), log)
            for info in list_bundles(root)
            if info.name == name
        ]
        least = min(held, default=0)
        return log.remove(name, least, settled_s) if least else 0
    finally:
        log.close()
