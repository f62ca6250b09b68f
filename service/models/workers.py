"""What each worker says of itself: one file under <bundles>/.workers/, there as long as the worker lives.

Replicas that share the folder are workers like any other, wherever they run.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from logging import getLogger
from pathlib import Path
from typing import Any

from service.models.livefile import LiveFile, read_or_sweep

# A hidden name: no bundle can have it.
FOLDER = ".workers"
_LOCK = ".lock"
# A temporary file this old is one that its writer did not live to rename.
_STALE_S = 60.0
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """One worker.

    started     it answers requests, or is about to: its bundle is loaded, or there is none that it could load
    version     what it serves, as generation; None: nothing
    proposal    id of the proposal it has answered last; prepared is the version it has prepared for it, else
                failure says why not
    loaded      all versions that it holds
    """

    id: str
    pid: int
    host: str
    started: bool = False
    generation: int = 0
    version: str | None = None
    proposal: str | None = None
    prepared: str | None = None
    failure: str | None = None
    loaded: tuple[str, ...] = ()


class Presence:
    """A worker's own file. Where it cannot be written the worker serves all the same, unseen by swaps."""

    def __init__(self, root: Path) -> None:
        self._root = root
        id = secrets.token_hex(4)
        self.report = Report(id, os.getpid(), socket.gethostname())
        self._file = LiveFile(root / FOLDER / f"{id}.json")
        self._written: Report | None = None
        self._warned = self._closed = False

    @property
    def unsaid(self) -> bool:
        """Whether the report is not what is written, though it could be."""
        return not self._closed and self.report != self._written

    def say(self, **changes: Any) -> None:
        """Change the report; written only where it says something new."""
        self.report = replace(self.report, **changes)
        if not self.unsaid:
            return
        try:
            (self._root / FOLDER).mkdir(exist_ok=True)
            self._file.write(json.dumps(asdict(self.report)).encode())
        except OSError as error:
            if not self._warned:
                _log.warning("this worker cannot report to swaps: %s", error)
            self._warned = True
        else:
            self._written, self._warned = self.report, False

    def close(self) -> None:
        """The worker is gone."""
        self._closed = True
        self._file.close()


def reports(root: Path) -> list[Report]:
    """What the living workers say, in the order of their ids; the files of dead ones are removed."""
    found = []
    try:
        names = sorted(os.listdir(root / FOLDER))
    except OSError:
        return []
    for name in names:
        if name.endswith(".tmp"):
            _remove_stale(root / FOLDER / name)
        if name.startswith(".") or not name.endswith(".json"):
            continue
        content = read_or_sweep(root / FOLDER / name)
        if content is not None and (report := _parsed(content)) is not None:
            found.append(report)
    return found


def _parsed(content: bytes) -> Report | None:
    try:
        value = json.loads(content)
        report = Report(**{**value, "loaded": tuple(value["loaded"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # of another release
    said: dict[str, Any] = asdict(report)
    texts = [said[name] for name in ("id", "host")] + [*report.loaded]
    perhaps = [said[name] for name in ("version", "proposal", "prepared", "failure")]
    kinds = [(texts, str), ([said["started"]], bool), ([said["pid"], said["generation"]], int)]
    kinds += [([text for text in perhaps if text is not None], str)]
    sound = all(type(value) is kind for values, kind in kinds for value in values)
    return report if sound else None


def _remove_stale(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _STALE_S:
            path.unlink()


@contextmanager
def choosing(root: Path) -> Iterator[None]:
    """One worker at a time, while workers that find no note agree on what to come up on.

    Where the folder cannot be written nobody reports, and there is nothing to agree on.
    """
    try:
        (root / FOLDER).mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(root / FOLDER / _LOCK, flags, 0o644)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def converged(found: list[Report], generation: int) -> bool:
    """Every worker that answers requests serves the same version, as this generation."""
    started = [report for report in found if report.started]
    return (
        all(report.generation == generation for report in started)
        and len({report.version for report in started}) <= 1
    )
