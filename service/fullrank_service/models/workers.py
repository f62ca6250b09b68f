"""The report of each worker or replica: one file under <bundles>/.workers/, as long as the worker lives."""

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

from pydantic import TypeAdapter, ValidationError

from fullrank_service.models.livefile import LiveFile, read_or_sweep

# A hidden name, which no bundle can have.
FOLDER = ".workers"
_LOCK = ".lock"
# The writer of a temporary file that is older than this has died before it could rename it.
_STALE_S = 60.0
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What one worker reports.

    started     it answers requests, or is about to: its bundle is loaded, or the folder has no bundle
    version     the version that it serves; None: no model
    proposal    id of the last proposal that it has answered: with ``prepared``, the version that it has prepared, or
                with ``failure``, the reason why it cannot
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


_REPORT = TypeAdapter(Report)


class Presence:
    """Writes a worker's report. If it cannot be written the worker still serves, but swaps do not wait for it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        id = secrets.token_hex(4)
        self.report = Report(id, os.getpid(), socket.gethostname())
        self._file = LiveFile(root / FOLDER / f"{id}.json")
        self._written: Report | None = None
        self._warned = self._closed = False

    @property
    def dirty(self) -> bool:
        """Whether the report differs from the file."""
        return not self._closed and self.report != self._written

    def publish(self, **changes: Any) -> None:
        """Change the report; write it if it differs from the file."""
        self.report = replace(self.report, **changes)
        if not self.dirty:
            return
        try:
            (self._root / FOLDER).mkdir(exist_ok=True)
            self._file.write(json.dumps(asdict(self.report)).encode())
        except OSError as error:
            if not self._warned:
                _log.warning(
                    "this worker cannot write its report, so swaps will not wait for it: %s", error
                )
            self._warned = True
        else:
            self._written, self._warned = self.report, False

    def close(self) -> None:
        self._closed = True
        self._file.close()


def reports(root: Path) -> list[Report]:
    """Return the reports of all live workers in the order of their ids; remove the files of dead ones."""
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
        if content is not None:
            with suppress(ValidationError):  # written by another release
                found.append(_REPORT.validate_json(content, strict=True))
    return found


def _remove_stale(path: Path) -> None:
    with suppress(OSError):
        if abs(time.time() - path.stat().st_mtime) > _STALE_S:  # ahead: the clock was set back
            path.unlink()


@contextmanager
def choosing(root: Path) -> Iterator[None]:
    """Lock the choice of a version where none was activated, unless the folder cannot be written."""
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
    """Return whether every started worker serves this generation, and all the same version."""
    started = [report for report in found if report.started]
    return (
        all(report.generation == generation for report in started)
        and len({report.version for report in started}) <= 1
    )
