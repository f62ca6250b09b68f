"""Search that learns from clicks: the public Python API.

open_bundle   open a trained bundle; then bundle.search, .explain, .encode, .evaluate
Bundle, Hit, SearchResult, FullrankError   their types

    score(q, d) = (U q)·(V d) + Σ_fields q·D_f·d_f + b_d        parts of a score: dense, lexical, bias

`import fullrank` alone imports no other package; the first use of a name does.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullrank.bundle import Bundle, Hit, SearchResult
    from fullrank.errors import FullrankError

__version__ = "0.1.0"
__all__ = ["Bundle", "FullrankError", "Hit", "SearchResult", "__version__", "open_bundle"]

_MODULES = {
    "Bundle": "fullrank.bundle",
    "FullrankError": "fullrank.errors",
    "Hit": "fullrank.bundle",
    "SearchResult": "fullrank.bundle",
}


def open_bundle(path: str | Path, *, verify: bool = True) -> Bundle:
    """Open a bundle for searching.

    Args:
        path: A bundle's folder, BUNDLES/NAME for the newest version of a name, or BUNDLES where it holds one name.
        verify: Read and check every file first. Pass False for a folder that was verified before.

    Raises:
        BundleNotFound: There is no bundle.
        BundleError: The bundle is damaged; the message names the file.

    Example:
        >>> from fullrank import open_bundle
        >>> bundle = open_bundle(path)
        >>> [hit.id for hit in bundle.search("red apple", limit=2)]
        ['apple', 'ringo']
    """
    from fullrank.bundle import open_bundle as open_folder
    from fullrank.bundle.catalog import resolve

    return open_folder(resolve(Path(path)), verify=verify)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fullrank' has no attribute {name!r}")
