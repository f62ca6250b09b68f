"""Bundles: the only thing that passes from trainer to service. The format is docs/reference/bundle.md.

<root>/<name>/<version>/manifest.json ...

write.py     stream_bundle: a model and its documents become a folder, all or nothing
bundle.py    Bundle: search, explain, encode, evaluate; write_corpus: its documents, to train again
manifest.py  what a bundle consists of: hash, dtype and shape of each file
staging.py   fill a folder, then publish it
verify.py    check files and map them
golden.py    answers that are replayed when a bundle is opened
documents.py encoded documents as arrays or records
second_stage.py the second stage and its facts
open.py      open_bundle, open_model, open_stage, open_trained: verify, map, replay the golden queries
catalog.py   list_bundles, find_bundle, log_position_of: what a root folder offers
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fullrank.bundle.catalog import BundleInfo, find_bundle, list_bundles, log_position_of
from fullrank.bundle.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from fullrank.bundle.bundle import Bundle
    from fullrank.bundle.open import (
        is_of_model,
        open_bundle,
        open_model,
        open_stage,
        open_trained,
        verify_bundle,
    )
    from fullrank.bundle.write import stream_bundle
    from fullrank.search.searchable import Hit
    from fullrank.search.searchable import Hits as SearchResult

__all__ = [
    "Bundle",
    "BundleInfo",
    "Hit",
    "Manifest",
    "SearchResult",
    "find_bundle",
    "is_of_model",
    "list_bundles",
    "log_position_of",
    "open_bundle",
    "open_model",
    "open_stage",
    "open_trained",
    "read_manifest",
    "stream_bundle",
    "verify_bundle",
]

# The catalog is read without compiled kernels; the first use of another name loads them.
_MODULES = {"Bundle": "bundle", "stream_bundle": "write"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fullrank.bundle' has no attribute {name!r}")
    if name in ("Hit", "SearchResult"):
        searchable = import_module("fullrank.search.searchable")
        return searchable.Hit if name == "Hit" else searchable.Hits
    return getattr(import_module(f"fullrank.bundle.{_MODULES.get(name, 'open')}"), name)
