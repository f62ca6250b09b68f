"""Checkpoints: an interrupted training as one file, replaced atomically."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError

# What numpy and zipfile raise over a damaged file; AttributeError over one that holds a single array.
_UNREADABLE = (
    AttributeError, BadZipFile, EOFError, KeyError, NotImplementedError, OSError, TypeError, ValueError,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A fit at the end of an epoch: arrays by name, and JSON facts (epoch, history, generator, ...)."""

    facts: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write beside, sync, rename: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    facts = np.frombuffer(json.dumps(checkpoint.facts).encode(), np.uint8)
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, facts=facts, **checkpoint.arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, *, identity: str) -> Checkpoint | None:
    """The checkpoint of a run, None where there is none.

    Raises TrainingError when the file is damaged or belongs to another recipe, seed or collection.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        facts = dict(json.loads(arrays.pop("facts").tobytes()))
    except _UNREADABLE as error:
        raise TrainingError(f"checkpoint {path} cannot be read: {error}") from error
    if facts.get("identity") != identity:
        raise TrainingError(
            f"checkpoint {path} is of another recipe, seed or collection; train without --resume to start anew"
        )
    return Checkpoint(facts, arrays)
