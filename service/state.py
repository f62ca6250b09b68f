"""The note beside the bundles of which version serves: <bundles>/active.json.

Written by atomic replace under a lock file, so that a reader sees the old note or the new one and
two writers cannot both win. A restart and the other workers come up on what it says.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

STATE = "active.json"
LOCK = ".active.lock"


@dataclass(frozen=True, slots=True)
class ActiveState:
    """generation counts activations; version None: nothing was activated, the newest serves.

    manifest_sha256 ties the note to the very bundle it meant. loaded are versions that every worker
    should hold besides.
    """

    generation: int = 0
    version: str | None = None
    manifest_sha256: str | None = None
    loaded: tuple[str, ...] = ()


class StateDamaged(Exception):
    """The note is there and cannot be read; the message says why."""


def read_state(root: Path) -> ActiveState | None:
    """The note, or None where there is none. Raises StateDamaged."""
    path = root / STATE
    try:
        value = json.loads(path.read_bytes())
        state = ActiveState(
            value["generation"],
            value["version"],
            value["manifest_sha256"],
            tuple(value["loaded"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateDamaged(f"{path}: {type(error).__name__}: {error}") from error
    texts = [state.version, state.manifest_sha256, *state.loaded]
    if type(state.generation) is not int or not all(isinstance(t, str | None) for t in texts):
        raise StateDamaged(f"{path}: a field is not of its type")
    return state


def write_state(root: Path, state: ActiveState) -> None:
    """Replace the note; when this returns the new one survives a power cut. Raises OSError."""
    temporary = root / f".{STATE}.{os.getpid()}.tmp"
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(asdict(state), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(root / STATE)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def fingerprint(root: Path) -> tuple[int, int, int] | None:
    """Changes whenever the note was replaced; one stat, cheap enough to ask twice a second."""
    try:
        stat = (root / STATE).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


class Locked(Exception):
    """Another process holds the lock."""


@contextmanager
def lock(root: Path) -> Iterator[None]:
    """The right to change the note, over all workers of this machine. Raises Locked at once.

    The kernel gives it back when the process dies, however it dies.
    """
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Locked from error
        yield
    finally:
        os.close(descriptor)
