"""The notes beside the bundles: which version serves, and which one is about to.

active.json      the committed truth; a restart and every worker come up on what it says. Replaced atomically and
                 synced, so a reader sees the old note or the new one, also after a power cut.
proposed.json    a swap under way; void as soon as the process that wrote it is gone (livefile.py)
.active.lock     who holds it may change either; the kernel gives it back when its holder dies
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file
from service.models.livefile import LiveFile, read_live

STATE = "active.json"
PROPOSAL = "proposed.json"
LOCK = ".active.lock"

Mark = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class ActiveState:
    """generation counts activations; version None: nothing was activated, the newest serves.

    manifest_sha256 ties the note to the very bundle it meant. loaded are versions that every worker
    should hold besides; previous is the version that served before.
    """

    generation: int = 0
    version: str | None = None
    manifest_sha256: str | None = None
    loaded: tuple[str, ...] = ()
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What every worker should prepare: id names this one attempt, host is where its coordinator runs."""

    id: str
    version: str
    manifest_sha256: str
    host: str


class StateDamaged(FullrankError):
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
            value.get("previous"),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateDamaged(f"{path}: {type(error).__name__}: {error}") from error
    texts = [state.version, state.manifest_sha256, state.previous, *state.loaded]
    if type(state.generation) is not int or not all(isinstance(t, str | None) for t in texts):
        raise StateDamaged(f"{path}: a field is not of its type")
    return state


def write_state(root: Path, state: ActiveState) -> None:
    """Replace the note; when this returns the new one survives a power cut. Raises OSError."""
    replace_file(root / STATE, json.dumps(asdict(state)))


def propose(root: Path, proposal: Proposal) -> LiveFile:
    """Write a proposal; it counts until what is returned is closed. Raises OSError."""
    file = LiveFile(root / PROPOSAL)
    file.write(json.dumps(asdict(proposal)).encode())
    return file


def read_proposal(root: Path) -> Proposal | None:
    """The proposal of a coordinator that lives, if there is one."""
    content = read_live(root / PROPOSAL)
    if content is None:
        return None
    try:
        value: dict[str, Any] = json.loads(content)
        proposal = Proposal(**value)
    except (ValueError, TypeError, RecursionError):
        return None
    return proposal if all(isinstance(text, str) for text in asdict(proposal).values()) else None


def sweep(root: Path) -> None:
    """Remove what a coordinator that died left behind; only for the holder of the lock."""
    for name in (STATE, PROPOSAL):
        for path in root.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                path.unlink()
    with suppress(OSError):
        (root / PROPOSAL).unlink()


def mark(path: Path) -> Mark:
    """Changes whenever a note was replaced; one stat, cheap enough to ask many times a second."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size


class Locked(Exception):
    """Another process holds the lock."""


@contextmanager
def lock(root: Path) -> Iterator[None]:
    """The right to change the notes, over all who share the folder. Raises Locked at once.

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
