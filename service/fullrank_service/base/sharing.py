"""Metrics of several worker processes, through prometheus-client's multiprocess mode.

Each worker maps its own files in one shared folder, and the worker that answers Prometheus adds up all files. The files
are named after the worker's number, not its process id: the replacement of a dead worker continues its counters, and
the number of files stays bounded. The supervisor removes the gauges of a dead worker.

The folder is in /dev/shm where there is one. On a disk, writing into a mapped file can wait for the disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging import getLogger
from pathlib import Path

from fullrank.errors import FullrankError

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that switches prometheus-client to multiprocess mode; it is read at import."""
NUMBER = "PROMETHEUS_WORKER"
"""The environment variable with the number of this worker."""

PREFIX = "fullrank-metrics-"
MEMORY = Path("/dev/shm")
# The files of a worker, by prometheus-client's names, and the bytes reserved for each before the first metric is made.
# Writing to a mapped page for which the disk has no room ends the process with SIGBUS.
FILE_BYTES = {"counter": 1 << 20, "histogram": 1 << 20, "gauge_livesum": 1 << 16}
# Why a worker was replaced.
DIED, HUNG = "died", "hung"
RESTARTS = "fullrank_worker_restarts", "Workers replaced because they died, or hung and were killed"
"""Name and description of the counter that the supervisor writes."""
_log = getLogger(__name__)


def worker_number() -> str:
    """Return the number of this worker, "0" where it is the only one."""
    return os.environ.get(NUMBER, "0")


def shared_folder() -> Path | None:
    """Return the folder of the metrics of all workers; None: this process has its own."""
    folder = os.environ.get(FOLDER)
    return Path(folder) if folder else None


@contextmanager
def metrics_folder(given: Path | None) -> Iterator[Path]:
    """Provide an empty, locked folder for the metrics of one service; None: a temporary one, which is removed at the
    end.

    A service that was killed leaves its folder behind; the next start removes those that are no longer locked.

    Raises:
        FullrankError: the folder cannot be made, or another service uses it.
    """
    if given is None:
        root = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        _remove_abandoned(root)
    try:
        if given is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        else:
            folder = given
            folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
    except OSError as error:
        name = given or root
        raise FullrankError(f"FULLRANK_METRICS_FOLDER: {name}: {error.strerror}") from error
    if lock is None:
        raise FullrankError(f"FULLRANK_METRICS_FOLDER: {folder}: another service uses this folder")
    try:
        for file in folder.glob("*.db"):
            file.unlink()
        yield folder
    finally:
        if given is None:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def join(number: str) -> None:
    """Count as this worker from now on, or alone if the folder is full. Call before any metric is made."""
    folder = shared_folder()
    assert folder is not None
    try:
        for kind, size in FILE_BYTES.items():
            _reserve(folder / f"{kind}_{number}.db", size)
    except OSError as error:
        _log.error("%s: %s; this worker reports only its own metrics", folder, error.strerror)
        del os.environ[FOLDER]
        return
    os.environ[NUMBER] = number
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(lambda: number)


def restart_counter(folder: Path) -> Callable[[str], None]:
    """Return what counts the workers that ended by themselves; it counts nothing where the folder is full."""
    try:
        _reserve(folder / "counter_supervisor.db", FILE_BYTES["counter"])
    except OSError:
        return lambda reason: None
    from prometheus_client import CollectorRegistry, Counter, values

    # Workers that are forked later choose their own files.
    kept, values.ValueClass = values.ValueClass, values.MultiProcessValue(lambda: "supervisor")
    try:
        counter = Counter(*RESTARTS, ("reason",), registry=CollectorRegistry())
        series = {reason: counter.labels(reason) for reason in (DIED, HUNG)}
    finally:
        values.ValueClass = kept
    return lambda reason: series[reason].inc()


def _reserve(path: Path, size: int) -> None:
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def leave(folder: Path, number: str) -> None:
    """Remove the gauges of a worker that died; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    with suppress(OSError):
        mark_process_dead(number, str(folder))


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = _lock(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the returned descriptor is closed or the process ends; None: it is locked already."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
