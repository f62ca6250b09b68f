"""Commands of the product in processes of their own, watched from outside; and the peak memory of this one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S, _MOST_S = 0.05, 1.0
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Measured:
    """A finished command: its standard output, wall time and memory, its own processes included.

    Attributes:
        processor_s: Processor time of all its processes.
        peak_gib: The largest sum of their resident memory, mapped files included.
        peak_anonymous_gib: The largest sum of what is not of a file.
    """

    out: str
    seconds: float
    processor_s: float
    peak_gib: float
    peak_anonymous_gib: float


def run_measured(arguments: Sequence[str]) -> Measured:
    """Run `python -m fullrank ARGUMENTS` and watch it from outside; exit if it fails."""
    command = [sys.executable, "-m", "fullrank", *arguments]
    began, before = time.perf_counter(), _children_s()
    peak = anonymous = 0
    with tempfile.TemporaryFile() as out:
        # Standard error stays on the terminal, so a run of minutes shows its progress.
        process = subprocess.Popen(command, stdout=out, cwd=_REPOSITORY)
        while process.poll() is None:
            resident, own = _memory_bytes(process.pid)
            peak, anonymous = max(peak, resident), max(anonymous, own)
            # Looking through /proc takes milliseconds, which a long run would miss.
            time.sleep(min(max(_POLL_S, (time.perf_counter() - began) / 100), _MOST_S))
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    return Measured(text, seconds, _children_s() - before, peak / 2**30, anonymous / 2**30)


def _children_s() -> float:
    """Return the processor time of all processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_bytes(root: int) -> tuple[int, int]:
    """Return the resident memory of a process and all its descendants, and that of no file, from /proc."""
    parents: dict[int, int] = {}
    memory: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # The name in parentheses may contain spaces; the rest does not.
            rest = Path("/proc", entry, "stat").read_text("utf-8", "replace").rpartition(")")[2]
            _, resident, of_files, *_ = map(int, Path("/proc", entry, "statm").read_text().split())
        except OSError:
            continue  # ended since it was listed
        parents[int(entry)] = int(rest.split()[1])
        memory[int(entry)] = resident, resident - of_files
    total = anonymous = 0
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        resident, own = memory.get(parent, (0, 0))
        total, anonymous = total + resident, anonymous + own
        waiting.extend(child for child, above in parents.items() if above == parent)
    page = os.sysconf("SC_PAGE_SIZE")
    return total * page, anonymous * page


_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peaks:
    """The largest resident memory of each part of a run.

    Attributes:
        gib: name of a part → its peak, GiB.

    Example:
        >>> peaks = Peaks()
        >>> _ = bytes(1 << 20)
        >>> peaks.end("a megabyte")
        >>> peaks.gib["a megabyte"] > 0
        True
    """

    def __init__(self) -> None:
        self.gib: dict[str, float] = {}
        _reset()

    def end(self, name: str) -> None:
        """End a part, and begin the next one. A part that comes again has the larger of its peaks."""
        peak = round(peak_kib() / 2**20, 3)
        self.gib[name] = max(peak, self.gib.get(name, 0.0))
        _reset()

    @property
    def largest(self) -> float:
        """The largest peak of all parts."""
        return max(self.gib.values())


def peak_kib() -> int:
    """Return the peak resident memory of this process (VmHWM), mapped files included."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _reset() -> None:
    """Let the peak be what is resident now (man proc_pid_clear_refs)."""
    _RESET.write_text("5")
