"""Search that learns from clicks: the public Python API.

open_bundle   open a trained bundle; then bundle.search, .explain, .encode, .evaluate
Bundle, Hit, SearchResult, FullrankError   their types

    score(q, d) = (U q)·(V d) + Σ_fields q·D_f·d_f + b_d        parts of a score: dense, lexical, bias

`import fullrank` alone imports no other package; the first use of a name does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullrank.bundle import Bundle, Hit, SearchResult, open_bundle
    from fullrank.errors import FullrankError

__version__ = "0.1.0"
__all__ = ["Bundle", "FullrankError", "Hit", "SearchResult", "__version__", "open_bundle"]

_MODULES = {
    "Bundle": "fullrank.bundle",
    "FullrankError": "fullrank.errors",
    "Hit": "fullrank.bundle",
    "SearchResult": "fullrank.bundle",
    "open_bundle": "fullrank.bundle",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fullrank' has no attribute {name!r}")
