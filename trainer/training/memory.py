"""Memory of the process."""

from __future__ import annotations

import ctypes


def return_free_memory() -> None:
    """Return freed memory to the system; the C library would keep it, above all that of many texts.

    No-op where the C library is not glibc.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    trim(0)
