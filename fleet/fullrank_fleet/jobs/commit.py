"""Commit the bundle of a shard: its manifest is uploaded last, so a shard that has one is complete."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fullrank.bundle.manifest import MANIFEST, Manifest, parse_manifest
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets import Shard


def upload(bundle: Path, target: Folder) -> bytes:
    """Copy a bundle of this machine into a folder and return its manifest. Raises RemoteError."""
    content = (bundle / MANIFEST).read_bytes()
    for name in parse_manifest(content.decode()).files:
        target.upload(bundle / name, name)
    target.write(MANIFEST, content)
    return content


def entry_of(partitions: range, committed: bytes) -> Shard:
    """Return what set.json records of a shard, given its manifest."""
    manifest = parse_manifest(committed.decode())
    return Shard(
        partitions.start,
        partitions.stop,
        manifest.bundle_id,
        hashlib.sha256(committed).hexdigest(),
        _documents(manifest),
        manifest.total_bytes,
    )


def empty_entry(partitions: range) -> Shard:
    """Return the entry of a shard without documents."""
    return Shard(partitions.start, partitions.stop, None, None, 0, 0)


def _documents(manifest: Manifest) -> int:
    shape = manifest.files["documents/bias.npy"].shape
    assert shape is not None
    return shape[0]
