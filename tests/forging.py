"""Damage to a bundle on disk, with a manifest that agrees: who forges can do that too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import FileEntry, bundle_id

Damage = Callable[[Path], object]


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


def edit(path: Path, change: Callable[[dict[str, Any]], Any], *, new_id: bool = True) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    # Of one who forges, not of one who errs: what the checksum would find is not what is tested.
    manifest.pop("checksum", None)
    change(manifest)
    if new_id:
        files = {k: FileEntry(v["sha256"], v["bytes"]) for k, v in manifest["files"].items()}
        manifest["bundle_id"] = bundle_id(files, manifest["model"])
    (path / "manifest.json").write_text(json.dumps(manifest))


def agree(path: Path, *changed: str, **more: Any) -> None:
    """Let the manifest say what the files are now, hashes and all."""

    def change(manifest: dict[str, Any]) -> None:
        for name in changed:
            content = (path / name).read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            manifest["files"].setdefault(name, {}).update(sha256=sha256, bytes=len(content), **more)

    edit(path, change)


def put(path: Path, name: str, content: bytes) -> None:
    """Replace a file, or add one, and make the manifest agree."""
    (path / name).write_bytes(content)
    agree(path, name)


def rewrite(path: Path, name: str, array: npt.NDArray[Any]) -> None:
    """Replace an array and make the manifest agree: only a look at the values can object."""
    np.save(path / name, array)
    agree(path, name, dtype=array.dtype.str, shape=list(array.shape))


def array(name: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any] | None]) -> Damage:
    """Change an array so that everything agrees but its values or its shape."""

    def damage(path: Path) -> None:
        found = np.load(path / name)
        changed = change(found)
        rewrite(path, name, found if changed is None else changed)

    return damage


def value(place: Any, to: Any) -> Callable[[npt.NDArray[Any]], None]:
    return lambda found: found.__setitem__(place, to)


def edited(change: Callable[[dict[str, Any]], Any]) -> Damage:
    return lambda path: edit(path, change)


def entry(name: str, **values: Any) -> Damage:
    return edited(lambda manifest: manifest["files"][name].update(values))


def link(name: str, up: int = 2) -> Damage:
    """A file or a folder links to what it was: outside the folder of bundles, or (up = 1) outside the bundle alone."""

    def damage(path: Path) -> None:
        outside = path.parents[up] / name.replace("/", "-")
        (path / name).rename(outside)
        (path / name).symlink_to(outside)

    return damage
