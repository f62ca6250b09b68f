"""Bundles: the only thing that passes from trainer to service. The format is docs/bundle.md.

<root>/<name>/<version>/manifest.json ...

write_bundle    publish.py    a model and its documents become a folder, all or nothing
stream_bundle   publish.py    the same from batches of documents, of any number
open_bundle     loading.py    verify, map, replay the golden queries
open_model      loading.py    its model alone
list_bundles    here          what a root folder offers
find_bundle     here          the newest version of a name, or one version
live_in         here          which live documents a corpus has that was exported from a bundle
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any

from fullrank.bundle.manifest import LogPosition, Manifest, is_name
from fullrank.bundle.open import Bundle, open_bundle, open_model, read_manifest, verify_bundle
from fullrank.bundle.write import stream_bundle, write_bundle
from fullrank.errors import BundleError, BundleNotFound

__all__ = [
    "Bundle",
    "BundleInfo",
    "Manifest",
    "find_bundle",
    "list_bundles",
    "live_in",
    "open_bundle",
    "open_model",
    "read_manifest",
    "stream_bundle",
    "verify_bundle",
    "write_bundle",
]

_log = getLogger(__name__)


@dataclass(frozen=True)
class BundleInfo:
    """What the manifest of one bundle says, without opening the rest of it."""

    name: str
    version: str
    path: Path
    created: str
    card: Mapping[str, Any]
    bytes: int


def list_bundles(root: Path) -> list[BundleInfo]:
    """Every bundle under a root folder, newest first; equal times by version.

    Only <root>/<name>/<version>/ whose manifest says the same name and version counts. What else
    lies there (temporary folders, copies under another name, damaged manifests) is logged and left
    out. Raises BundleNotFound when the root is not a folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise BundleNotFound(f"{root}: no such folder")
    found = [info for name in _names(root) for info in _versions(root, name)]
    return sorted(found, key=lambda info: (info.created, info.version), reverse=True)


def find_bundle(root: Path, name_or_version: str) -> Path:
    """The folder of a version, or of the newest version of a name.

    Raises BundleNotFound, saying what was looked for, when there is neither.
    """
    root = Path(root)
    if is_name(name_or_version):
        infos = list_bundles(root)
        for info in infos:
            if info.version == name_or_version:
                return info.path
        for info in infos:
            if info.name == name_or_version:
                return info.path
    raise BundleNotFound(f"{root}: no bundle and no version named {name_or_version!r}")


def live_in(bundle: Path, name: str) -> LogPosition | None:
    """Up to where a corpus that was exported from a bundle has the live documents of a name; None: it has none.

    Live documents belong to the name of the bundle that they were written to: under another name they are documents
    like all others. Raises BundleError where the manifest cannot be read.
    """
    manifest = read_manifest(bundle)
    return manifest.log_position if manifest.name == name else None


def _names(root: Path) -> Iterator[str]:
    for folder in sorted(root.iterdir()):
        if is_name(folder.name) and folder.is_dir():
            yield folder.name


def _versions(root: Path, name: str) -> Iterator[BundleInfo]:
    try:
        folders = [f for f in sorted((root / name).iterdir()) if is_name(f.name) and f.is_dir()]
    except OSError as error:
        # Removed since it was seen, as by a writer that failed, or not for us to read.
        _log.warning("left out %s: %s", root / name, error.strerror)
        return
    for folder in folders:
        try:
            manifest = read_manifest(folder)
        except BundleError as error:
            _log.warning("left out %s: %s", folder, error)
            continue
        if (manifest.name, manifest.version) != (name, folder.name):
            _log.warning("left out %s: it says it is %s", folder, manifest.version)
            continue
        yield BundleInfo(
            name=manifest.name,
            version=manifest.version,
            path=folder,
            created=manifest.created,
            card=manifest.card,
            bytes=manifest.total_bytes,
        )
