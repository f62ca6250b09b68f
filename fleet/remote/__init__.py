"""Folders in object storage, and the cache of bundles on each machine.

folder.py   Folder: read, write and list objects under an address, through fsspec
cache.py    BundleCache: download a bundle once per machine, verify it, then map it
"""

from fleet.remote.cache import BundleCache
from fleet.remote.folder import Folder, RemoteError

__all__ = ["BundleCache", "Folder", "RemoteError"]
