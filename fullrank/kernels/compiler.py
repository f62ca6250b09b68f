"""Compile kernels for given types, and keep the machine code on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from logging import getLogger
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
    """Make a function that kernels call; it becomes part of each. Nothing calls it from C, so it has no entry for C."""
    compiling: Any = njit
    return cast(Function, compiling(nogil=True, forceinline=True, no_cfunc_wrapper=True)(function))


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
def fingerprint(*folders_and_modules: Path) -> str:
    """Return a fingerprint of modules, and of all modules in folders."""
    found = blake2b(digest_size=4)
    for path in folders_and_modules:
        for module in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            found.update(module.name.encode() + b"\0" + module.read_bytes())
    return found.hexdigest()


def kept(function: Function, sources: str, *signature: Any, **options: Any) -> Function:
    """Compile a function without the interpreter lock, and keep the machine code on disk.

    It is kept beside the source, or under NUMBA_CACHE_DIR. Where neither can be written, every process compiles for
    itself. numba compiles again when the module of a function changes, but helpers of other modules are part of the
    machine code too. So the name, by which numba finds it, has a fingerprint of theirs.

    Args:
        options: Of numba.
    """
    function.__qualname__ = f"{function.__qualname__}_{sources}"
    compiling: Any = njit
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    try:
        found = compiling(*signature, cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to write to
        found = compiling(*signature, **options)(function)
    if found.stats.cache_misses:
        _announce()
    return cast(Function, found)


@cache
def _announce() -> None:
    """Tell people at a terminal, once a process, why they wait."""
    if sys.stderr is not None and sys.stderr.isatty():
        getLogger(__name__).warning("fullrank compiles its kernels, once; about a minute")


def kernel(returns: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for these types now; its helpers are in the same folder."""

    def compile_now(function: Function) -> Function:
        folder = Path(function.__code__.co_filename).parent
        return kept(function, fingerprint(folder), returns(*arguments))

    return compile_now


def direct(compiled: Function) -> Function:
    """Return the machine code of a kernel, for Python alone to call.

    numba determines the types of all arguments at every call, which takes 8 µs for the tables of an index. The machine
    code trusts that arrays have the declared type and dimensions, and no gaps: pass arrays that this package made.
    """
    [found] = cast(Any, compiled).overloads.values()
    return cast(Function, found.entry_point)
