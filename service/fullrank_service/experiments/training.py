"""The training that the loop begins: a process of its own, which may outlive the loop.

Its file has one line that says what was begun, then what the process printed. The process keeps the lock of the loop.
So a loop that has the lock and finds the file knows: the training has ended, and nobody has acted on its result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from fullrank.bundle import list_bundles
from fullrank.storage.files import sync_folder

FULLRANK = (sys.executable, "-m", "fullrank")


@dataclass(frozen=True)
class Begun:
    """A training that was begun.

    Attributes:
        active: Version that it improves.
        at: Begin, in seconds since 1970.
        report: What `fullrank retrain` printed; None if it ended without a report.
    """

    active: str
    at: float
    report: dict[str, Any] | None


class TrainingFile:
    """The file of the training of one model.

    Args:
        root: Folder of bundles.
        name: Of the model.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._root, self._name = root, name
        self._path = root / f".loop.{name}.training"

    @contextmanager
    def begin(self, active: str, at: float) -> Iterator[IO[bytes]]:
        """Write what is begun; yield the file for the output of the process."""
        with self._path.open("wb", buffering=0) as file:
            file.write(orjson.dumps({"active": active, "at": at}) + b"\n")
            os.fsync(file.fileno())
            sync_folder(self._root)
            yield file

    def printed(self) -> str:
        """Return what the process printed."""
        return self._path.read_bytes().partition(b"\n")[2].decode()

    def read(self) -> Begun | None:
        """Return what was begun; None without a file, or if the loop was killed before the training began."""
        try:
            line, _, printed = self._path.read_bytes().partition(b"\n")
            begun = orjson.loads(line)
            active, at = str(begun["active"]), float(begun["at"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        try:
            report = orjson.loads(printed)
        except ValueError:
            # It was killed, or failed; it may have published a version before that.
            return Begun(active, at, self._published(active, at))
        return Begun(active, at, report if isinstance(report, dict) else None)

    def remove(self) -> None:
        """Remove the file: its result was noted."""
        self._path.unlink(missing_ok=True)

    def _published(self, active: str, at: float) -> dict[str, Any] | None:
        """Return the report of the newest version that was trained from a version since a time."""
        for info in list_bundles(self._root):
            facts = info.card.get("clicks", {})
            is_new = datetime.fromisoformat(info.created).timestamp() >= at
            if is_new and info.name == self._name and facts.get("active") == active:
                return {"published": info.version, **facts}
        return None


def run_fullrank(arguments: Sequence[str], lock: int, output: IO[bytes] | None) -> int:
    """Run a command in a process of its own, so that its memory is free again; its progress goes to standard error.

    Args:
        arguments: Of `fullrank`.
        lock: Descriptor of the lock of the loop. The process inherits it, so the lock lasts until both have ended: a
            loop that is killed leaves the process running, and no other loop may begin meanwhile.
        output: Gets the standard output; None: it is not read. It is a file, because a pipe breaks with its reader.

    Returns:
        The exit code.
    """
    to = subprocess.DEVNULL if output is None else output
    return subprocess.run(
        [*FULLRANK, *arguments], stdout=to, pass_fds=[lock], check=False
    ).returncode
