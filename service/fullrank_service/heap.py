"""Give freed memory back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim_heap() -> None:
    """Give back to the system the memory that large temporary objects have left free.

    The C library keeps it in case it is needed again: hundreds of MB after a bundle of a million documents was
    verified. It does nothing with a C library other than glibc.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
