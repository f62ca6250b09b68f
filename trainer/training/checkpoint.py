"""Checkpoints: the state of a training in one file, replaced atomically."""

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

# Errors of numpy and zipfile for a damaged file; AttributeError for a file that is a single array.
_UNREADABLE = (
    AttributeError, BadZipFile, EOFError, KeyError, NotImplementedError, OSError, TypeError, ValueError,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A fit at the end of an epoch: arrays by name, and JSON facts (epoch, history, generator, …)."""

    facts: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a temporary file, sync and rename it, so a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    facts = np.frombuffer(json.dumps(checkpoint.facts).encode(), np.uint8)
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, facts=facts, **checkpoint.arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, *, identity: str) -> Checkpoint | None:
    """Load the checkpoint of a run.

    Args:
        path: of the file.
        identity: of the run.

    Returns:
        The checkpoint; None if the file does not exist.

    Raises:
        TrainingError: the file is damaged or belongs to another recipe, seed or collection.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        facts = dict(json.loads(arrays.pop("facts").tobytes()))
    except _UNREADABLE as error:
        raise TrainingError(
            f"checkpoint {path} cannot be read: {error}; train without --resume to start again"
        ) from error
    if facts.get("identity") != identity:
        raise TrainingError(
            f"checkpoint {path} belongs to another recipe, seed or collection; train without --resume to start again"
        )
    return Checkpoint(facts, arrays)
