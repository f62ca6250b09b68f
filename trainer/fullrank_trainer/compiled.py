"""Compile the loops of training when they are called first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fullrank import kernels
from fullrank.kernels.compiler import fingerprint, kept

HELPERS = (
    Path(kernels.__file__).parent,
    Path(__file__).parent / "systems" / "linear" / "kernels.py",
)
"""Modules whose helpers are compiled into loops of other modules; a change to them recompiles all loops."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is called first, and keep the machine code on disk."""

    def wrap(function: Callable[..., Any]) -> Any:
        return kept(function, fingerprint(*HELPERS), **options)

    return wrap
