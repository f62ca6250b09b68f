"""Bundles: the only thing that passes from trainer to service. The format is docs/bundle.md.

<root>/<name>/<version>/manifest.json ...

write.py     stream_bundle: a model and its documents become a folder, all or nothing
bundle.py    Bundle: search, explain, encode, evaluate
manifest.py  what a bundle consists of: hash, dtype and shape of each file
staging.py   fill a folder, then publish it
verify.py    check files and map them
golden.py    answers that are replayed when a bundle is opened
documents.py encoded documents as arrays or records
second_stage.py the second stage and its facts
open.py      open_bundle, open_model, open_stage, open_trained: verify, map, replay the golden queries
corpus.py    write_corpus: its documents, to train again
catalog.py   list_bundles, find_bundle, log_position_of: what a root folder offers
"""

from fullrank.bundle.bundle import Bundle
from fullrank.bundle.catalog import BundleInfo, find_bundle, list_bundles, log_position_of
from fullrank.bundle.manifest import Manifest
from fullrank.bundle.open import (
    is_of_model,
    open_bundle,
    open_model,
    open_stage,
    open_trained,
    read_manifest,
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
