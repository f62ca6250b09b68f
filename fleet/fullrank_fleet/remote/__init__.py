"""Folders in object storage, and the cache of bundles on each machine.

folder.py   Folder: read, write and list objects under an address, through fsspec; objects as files
cache.py    BundleCache: download a bundle once per machine, verify it, then map it
"""

from fullrank_fleet.remote.cache import BundleCache
from fullrank_fleet.remote.folder import Folder, RemoteError, absolute

__all__ = ["BundleCache", "Folder", "RemoteError", "absolute"]
