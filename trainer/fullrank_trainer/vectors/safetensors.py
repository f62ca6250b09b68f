"""Read the tensors of a safetensors file.

    8 bytes    little-endian length n of the header
    n bytes    JSON: name → {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}, "__metadata__"
    the rest   the numbers, little-endian, row by row; offsets count from here and leave no gap

https://huggingface.co/docs/safetensors describes the format. Nothing in it can run code.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.storage import strict_json
from fullrank.storage.strict_json import JsonError

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format
_MAX_DEPTH = 4


def read_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map the tensors of a file into memory; bfloat16 is converted to float32.

    Raises:
        TrainingError: the file is truncated, has a gap or a number type that is not supported.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size - 8 - length
            if size < 0 or length > _MAX_HEADER_BYTES:
                raise _refused(path, "is truncated or no safetensors file")
            header = strict_json.parse(file.read(length), max_depth=_MAX_DEPTH)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error}") from error
    except JsonError as error:
        raise _refused(path, f"the header {error}") from error
    if not isinstance(header, dict):
        raise _refused(path, "the header is no JSON object")
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    places = {name: _place(path, name, entry) for name, entry in entries.items()}
    end = 0
    for name, (begin, stop, _, _) in sorted(places.items(), key=lambda item: item[1][:2]):
        if begin != end:
            raise _refused(path, f"tensor {name!r} begins at byte {begin}, expected {end}")
        end = stop
    if end != size:
        raise _refused(path, f"has {size} bytes of numbers, its header announces {end}")
    return {name: _map(path, 8 + length, *place) for name, place in places.items()}


def _place(path: Path, name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Return begin, end, dtype and shape of a tensor; check that they fit each other."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _refused(path, f"tensor {name!r} needs dtype, shape and data_offsets") from None
    if dtype not in _DTYPES:
        raise _refused(path, f"tensor {name!r}: dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
    sizes = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise _refused(path, f"tensor {name!r}: shape and data_offsets are no whole numbers")
    if end - begin != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
        raise _refused(path, f"tensor {name!r}: {end - begin} bytes do not fit the shape {shape}")
    return begin, end, dtype, tuple(shape)


def _map(
    path: Path, start: int, begin: int, end: int, dtype: str, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return one tensor."""
    kind = np.dtype(_DTYPES[dtype])
    if begin == end:
        return np.zeros(shape, kind)
    found = np.memmap(path, kind, "r", start + begin, shape)
    if dtype == "BF16":  # bfloat16 is the upper half of a float32
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found


def _refused(path: Path, reason: str) -> TrainingError:
    return TrainingError(f"train.vectors: {path}: {reason}")
