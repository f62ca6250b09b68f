"""Remove the versions that nobody needs any more, and what killed writers left."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path

from fullrank.bundle import BundleInfo, list_bundles
from fullrank.bundle.manifest import is_name
from fullrank.bundle.staging import abandoned, temporary_folder
from fullrank.errors import BundleNotFound
from fullrank.storage.files import sync_folder
from fullrank_service.models.state import ActiveState, Locked, lock, read_state
from fullrank_service.models.swap import SwapUnderWay
from fullrank_service.models.workers import Report, reports

KEEP = 5
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removed:
    """A folder that was removed: a version, or what a killed writer left."""

    path: Path
    bytes: int


def superseded(
    infos: Sequence[BundleInfo],
    state: ActiveState | None,
    workers: Sequence[Report],
    keep: int = KEEP,
) -> list[BundleInfo]:
    """Return the versions to remove, of those on disk, newest first.

    Kept are the newest versions of each name, every version that a worker has loaded, and those that the committed
    state names: the active one, the one before it, the candidate of an experiment, and those that stay loaded.
    """
    used = {own for report in workers for own in (report.version, report.prepared, *report.loaded)}
    if state is not None:
        used.update(state.loaded)
        for own in map(state.of, (None, *state.collections)):
            used |= {own.version, own.previous}
            if own.experiment is not None:
                used.add(own.experiment.candidate)
    seen: Counter[str] = Counter()
    removed = []
    for info in infos:
        seen[info.name] += 1
        if seen[info.name] > keep and info.version not in used:
            removed.append(info)
    return removed


def prune(
    root: Path, name: str | None = None, *, keep: int = KEEP, dry_run: bool = False
) -> list[Removed]:
    """Remove the superseded versions of a folder of bundles, and what killed writers left there; return them.

    A version disappears in one step: it is renamed to a name that no reader takes for a bundle, then deleted.

    Raises:
        BundleNotFound: There is no such folder or name.
        StateDamaged, SwapUnderWay: Nothing was removed.
    """
    if name is not None and not (is_name(name) and (root / name).is_dir()):
        raise BundleNotFound(f"{root}: no bundle named {name!r}")
    infos = [info for info in list_bundles(root) if name in (None, info.name)]
    left = [path for parent in sorted(root.glob(name or "*")) for path in abandoned(parent)]
    found = [Removed(path, _size(path)) for path in left]
    try:
        with nullcontext() if dry_run else lock(root):
            old = superseded(infos, read_state(root), reports(root), keep)
            found += [Removed(info.path, info.bytes) for info in old]
            hidden = {} if dry_run else {one.path: _hide(one.path) for one in found}
    except Locked:
        raise SwapUnderWay(
            "A swap is in progress; nothing was removed. Try again when it has finished."
        ) from None
    for path, trash in hidden.items():
        shutil.rmtree(trash)
        _log.info("removed %s", path)
    return found


def _hide(path: Path) -> Path:
    trash = path.rename(temporary_folder(path.parent))
    sync_folder(path.parent)
    return trash


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))
