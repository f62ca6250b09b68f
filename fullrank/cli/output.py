"""How commands print JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson

from fullrank.errors import FullrankError


def print_json(value: object) -> None:
    """Print one line of JSON, in ASCII where stdout is not UTF-8.

    Raises:
        FullrankError: stdout is closed.
    """
    if sys.stdout is None:
        raise FullrankError("stdout is closed; nothing can be printed")
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write((as_json(value) if utf8 else _ascii(value)) + "\n")


def as_json(value: object) -> str:
    """Format a value as JSON; stored integers may exceed 64 bits and paths may not be UTF-8."""
    try:
        return orjson.dumps(value, default=_plain).decode()
    except orjson.JSONEncodeError:
        return _ascii(value)


def _ascii(value: object) -> str:
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
