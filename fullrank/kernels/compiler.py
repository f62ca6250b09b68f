"""Compile kernels for given types, and keep the machine code on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit, types

Function = TypeVar("Function", bound=Callable[..., Any])

INT64, FLOAT64, FLOAT32 = types.int64, types.float64, types.float32


def array(dtype: str, dimensions: int = 1) -> Any:
    """Return the type of an array that a kernel reads; memory maps are read-only."""
    return types.Array(getattr(types, dtype), dimensions, "C", readonly=True)


def output(dtype: str, dimensions: int = 1) -> Any:
    """Return the type of an array that a kernel writes."""
    return types.Array(getattr(types, dtype), dimensions, "C")


def helper(function: Function) -> Function:
    """Make a function that kernels call; it becomes part of each."""
    return cast(Function, njit(nogil=True, forceinline=True)(function))


@helper
def check_inside(number: int, count: int) -> None:
    """Check a number that a file holds before it is used as a place in an array, which a kernel does not check.

    Raises:
        IndexError: It is below 0, or not below `count`.
    """
    if not 0 <= number < count:
        raise IndexError("damaged index of a bundle; `fullrank bundles verify` names the file")


def several(*kinds: Any) -> Any:
    """Return the type of a kernel's results where it has several."""
    make: Any = types.Tuple
    return make(kinds)


@cache
def _sources(folder: Path) -> str:
    """Return a fingerprint of the modules in a folder."""
    found = blake2b(digest_size=4)
    for path in sorted(folder.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def kernel(returns: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for these types now, without the interpreter lock.

    The machine code is kept beside the source, or under NUMBA_CACHE_DIR. Where neither can be written, every process
    compiles for itself. numba compiles again when the module of a kernel changes, but helpers of other modules are part
    of a kernel too. So its name, by which numba finds the machine code, has a fingerprint of all modules in its folder.
    """

    def compile_now(function: Function) -> Function:
        sources = _sources(Path(function.__code__.co_filename).parent)
        function.__qualname__ = f"{function.__qualname__}_{sources}"
        try:
            compiled: Function = njit(returns(*arguments), nogil=True, cache=True)(function)
        except RuntimeError:  # numba found no folder to write to
            compiled = njit(returns(*arguments), nogil=True)(function)
        return compiled

    return compile_now
