"""Peak memory of this process, part by part; Linux tells it."""

from __future__ import annotations

from pathlib import Path

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
