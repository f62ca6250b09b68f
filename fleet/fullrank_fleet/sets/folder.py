"""Read and write set.json, and find the newest sharded bundle of a name."""

from __future__ import annotations

from contextlib import suppress

from fullrank.bundle.manifest import is_name
from fullrank.errors import BundleError, BundleNotFound
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import SET, SetManifest, parse_set


def read_set(folder: Folder) -> SetManifest:
    """Read the set.json of a sharded bundle.

    Args:
        folder: <root>/<name>/<version>.

    Raises:
        BundleNotFound: There is none: no such bundle, or one that is still being written.
        BundleError: It is damaged, or that of another version.
        RemoteError: It cannot be read.
    """
    content = folder.read(SET)
    if content is None:
        raise BundleNotFound(f"{folder}: no {SET}, so no sharded bundle")
    try:
        found = parse_set(content)
    except BundleError as error:
        raise BundleError(f"{folder}: {error}") from error
    if folder.address.rstrip("/").rpartition("/")[2] != found.version:
        raise BundleError(f"{folder}: its {SET} is that of {found.version}")
    return found


def write_set(folder: Folder, manifest: SetManifest) -> None:
    """Write set.json, which makes the shards below one bundle. Raises RemoteError."""
    # Every other object of the set is there, so what killed tasks had begun to write is not needed.
    folder.remove_unfinished()
    folder.write(SET, manifest.dump().encode())


def find_set(root: Folder, name_or_version: str) -> Folder:
    """Find the folder of a version, or of the newest version of a name.

    Raises:
        BundleNotFound: The root has neither.
        RemoteError: The root cannot be read.
    """
    if is_name(name_or_version):
        versions = _complete(root / name_or_version)
        if versions:
            return root / name_or_version / max(versions)[1]
        with suppress(BundleNotFound):
            return find_version(root, name_or_version)
    raise BundleNotFound(f"{root}: no sharded bundle and no version named {name_or_version!r}")


def find_version(root: Folder, version: str) -> Folder:
    """Find the folder of a version.

    Raises:
        BundleNotFound: The root has no such version.
        RemoteError: The root cannot be read.
    """
    for name in root.folders() if is_name(version) else ():
        if is_name(name) and (root / name / version).read(SET) is not None:
            return root / name / version
    raise BundleNotFound(f"No bundle has the version {version!r}.")


def newest_set(root: Folder) -> Folder:
    """Find the folder of the newest version of all names.

    Raises:
        BundleNotFound: The root has no sharded bundle.
        RemoteError: The root cannot be read.
    """
    found = [
        (created, name, version)
        for name in root.folders()
        if is_name(name)
        for created, version in _complete(root / name)
    ]
    if not found:
        raise BundleNotFound(f"{root}: no sharded bundle; write one with: fullrank index --ray")
    _, name, version = max(found)
    return root / name / version


def sets_of(folder: Folder) -> list[SetManifest]:
    """Read all complete sharded bundles of a name; folder: <root>/<name>.

    Raises:
        BundleError: One is damaged.
        RemoteError: The folder cannot be read.
    """
    found = []
    for version in folder.folders():
        with suppress(BundleNotFound):
            found.append(read_set(folder / version))
    return found


def _complete(folder: Folder) -> list[tuple[str, str]]:
    """Return (time, version) of each complete bundle of a name; damaged ones are left out."""
    found = []
    for version in folder.folders():
        try:
            found.append((read_set(folder / version).created, version))
        except BundleError:
            continue
    return found
