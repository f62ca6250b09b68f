"""Objects beside set.json whose sha256 it records: they are written before it, and checked when they are read."""

from __future__ import annotations

import hashlib

from fullrank.errors import BundleError
from fullrank_fleet.remote import Folder


def write_checked(folder: Folder, name: str, content: bytes) -> str:
    """Write an object and return its sha256 (hex), which set.json records. Raises RemoteError."""
    folder.write(name, content)
    return hashlib.sha256(content).hexdigest()


def read_checked(folder: Folder, name: str, sha256: str) -> bytes:
    """Read an object.

    Raises:
        BundleError: It is missing or damaged.
        RemoteError: It cannot be read.
    """
    content = folder.read(name)
    if content is None:
        raise BundleError(f"{folder}/{name}: is missing")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BundleError(f"{folder}/{name}: sha256 differs from that in set.json")
    return content
