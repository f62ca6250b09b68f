"""List the bundles of a folder, and find one by name or version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any

from fullrank.bundle.manifest import MANIFEST, LogPosition, free_version, is_name, read_manifest
from fullrank.errors import BundleError, BundleNotFound
from fullrank.storage.files import FileFingerprint, fingerprint, replace_file, sync_folder
from fullrank.storage.strict_json import parse_object

ACTIVE = "active.json"
"""File beside the bundles that names the active version; fullrank_service.models.state writes it."""
_log = getLogger(__name__)


@dataclass(frozen=True)
class BundleInfo:
    name: str
    version: str
    path: Path
    created: str
    card: Mapping[str, Any]
    bytes: int


def list_bundles(root: Path) -> list[BundleInfo]:
    """List every bundle under a root folder, newest first; equal times by version. Raises BundleNotFound.

    A bundle is a folder <root>/<name>/<version> whose manifest has the same name and version. Other folders (copies
    under another name, damaged manifests) are logged and skipped.
    """
    root = Path(root)
    if not root.is_dir():
        raise BundleNotFound(f"{root}: no such folder")
    found = [info for name in _names(root) for info in _versions(root, name)]
    return sorted(found, key=lambda info: (info.created, info.version), reverse=True)


def find_bundle(root: Path, name_or_version: str) -> Path:
    """Find the folder of a version, or of the newest version of a name. Raises BundleNotFound."""
    root, wanted = Path(root), name_or_version
    if not root.is_dir():
        raise BundleNotFound(f"{root}: no such folder")
    if is_name(wanted):
        for name in _names(root):
            if (root / name / wanted / MANIFEST).is_file():
                for info in _versions(root, name):
                    if info.version == wanted:
                        return info.path
        infos = _versions(root, wanted) if (root / wanted).is_dir() else ()
        newest = max(infos, key=lambda info: (info.created, info.version), default=None)
        if newest is not None:
            return newest.path
    raise BundleNotFound(
        f"{root / wanted}: no {MANIFEST}, so no bundle; looked for {wanted}/*/{MANIFEST} and */{wanted}/{MANIFEST}, too"
    )


def resolve(path: Path) -> Path:
    """Find the bundle that a path means: a version's folder, or the newest version of a name.

    Links are not followed: the folder that holds the link decides the bundle's name and who serves it.

    Raises:
        BundleNotFound: There is no bundle, or there are bundles of several names.
    """
    path = absolute(path)
    if (path / MANIFEST).is_file():
        return path
    found = {file.parents[1].name for file in path.glob(f"*/*/{MANIFEST}")}
    names = sorted(name for name in found if is_name(name))
    if len(names) > 1:
        raise BundleNotFound(f"{path}: holds several models; add one of: {', '.join(names)}")
    return find_bundle(path, names[0]) if names else find_bundle(path.parent, path.name)


def absolute(path: Path) -> Path:
    """Make a path absolute without following links."""
    return Path(os.path.abspath(path))


def bundle_folders(path: Path) -> list[Path]:
    """List the version folders in a path, damaged ones too; a bundle's own folder lists itself."""
    if (path / MANIFEST).is_file():
        return [path]
    if not path.is_dir():
        raise BundleNotFound(f"{path}: no such folder")
    pattern = "*" if any(path.glob(f"*/{MANIFEST}")) else "*/*"
    folders = [
        folder
        for folder in sorted(path.glob(pattern))
        if folder.is_dir()
        and not any(part.startswith(".") for part in folder.relative_to(path).parts)
    ]
    if not folders:
        raise BundleNotFound(f"{path}: no bundles")
    return folders


def active_version(root: Path) -> str | None:
    """Return the version that was activated last, None if none was. Raises BundleError where its file is damaged."""
    path = Path(root) / ACTIVE
    try:
        version = parse_object(path.read_bytes())["version"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise BundleError(f"{path}: {type(error).__name__}: {error}") from error
    return version if isinstance(version, str) else None


def publish(staged: Path, root: Path, facts: Mapping[str, Any]) -> Path:
    """Move a bundle that nobody serves yet into a folder of bundles, with further facts in its card.

    Raises:
        BundleError: The manifest cannot be read, or facts have no JSON form.
        OSError: It cannot be written; the bundle is where it was.
    """
    manifest = read_manifest(staged)
    folder = Path(root) / manifest.name
    version, created = free_version(
        folder, manifest.name, datetime.fromisoformat(manifest.created), manifest.bundle_id
    )
    noted = replace(
        manifest,
        version=version,
        created=created.isoformat(timespec="microseconds"),
        card={**manifest.card, **facts},
    )
    file = staged / MANIFEST
    mode = file.stat().st_mode & 0o777
    replace_file(file, noted.dump(), mode)
    folder.mkdir(parents=True, exist_ok=True)
    target = staged.rename(folder / version)
    sync_folder(folder)
    sync_folder(folder.parent)
    return target


def log_position_of(bundle: Path, name: str) -> LogPosition | None:
    """Return the log position that a corpus exported from a bundle contains, for a new bundle of this name.

    Live documents belong to the name that they were written under: under another name, and without any, it is None.
    Raises BundleError where the manifest cannot be read.
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
        # A failed writer has removed it since, or it is not readable.
        _log.warning("skipped %s: %s", root / name, error.strerror)
        return
    for folder in folders:
        try:
            info = _info(folder, fingerprint(folder / MANIFEST))
        except BundleNotFound:
            continue
        except BundleError as error:
            _log.warning("skipped %s: %s", folder, error)
            continue
        if (info.name, info.version) != (name, folder.name):
            _log.warning("skipped %s: its manifest names %s", folder, info.version)
            continue
        yield info


@lru_cache(maxsize=4096)
def _info(folder: Path, written: FileFingerprint) -> BundleInfo:
    """Return the facts of a manifest; it is read again when its fingerprint has changed."""
    manifest = read_manifest(folder)
    return BundleInfo(
        name=manifest.name,
        version=manifest.version,
        path=folder,
        created=manifest.created,
        card=manifest.card,
        bytes=manifest.total_bytes,
    )
