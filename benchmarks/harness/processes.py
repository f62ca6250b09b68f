"""Commands of the product in processes of their own, watched from outside; and the peak memory of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Measured:
    """A finished command: its standard output, wall time and memory."""

    out: str
    seconds: float
    peak_gib: float


def run_measured(arguments: Sequence[str]) -> Measured:
    """Run `python -m fullrank ARGUMENTS` and watch it from outside; exit if it fails."""
    command = [sys.executable, "-m", "fullrank", *arguments]
    began = time.perf_counter()
    peak = 0
    with tempfile.TemporaryFile() as out:
        # Standard error stays on the terminal, so a run of minutes shows its progress.
        process = subprocess.Popen(command, stdout=out, cwd=_REPOSITORY)
        while process.poll() is None:
            peak = max(peak, _resident_bytes(process.pid))
            time.sleep(_POLL_S)
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    return Measured(text, seconds, peak / 2**30)


def _resident_bytes(root: int) -> int:
    """Return the resident memory of a process and all its descendants, from /proc."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # The name in parentheses may contain spaces; the rest does not.
            rest = Path("/proc", entry, "stat").read_text("utf-8", "replace").rpartition(")")[2]
        except OSError:
            continue  # ended since it was listed
        fields = rest.split()
        parents[int(entry)], resident[int(entry)] = int(fields[1]), int(fields[21])
    total = 0
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        total += resident.get(parent, 0)
        waiting.extend(child for child, above in parents.items() if above == parent)
    return total * os.sysconf("SC_PAGE_SIZE")


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
