"""Export a bundle in a process of its own that kills itself in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from fullrank import Bundle, open_bundle
from fullrank.engines import source
from fullrank.engines.source import Entry, Source
from fullrank.engines.target import export
from fullrank.progress import Reporter

_LAST_ROW = "50"


def export_killed(bundle: Bundle, target: str) -> None:
    """Run an export that ends without any handler of Python, at one of the last rows."""
    command = [sys.executable, "-m", __name__, str(bundle.path), target, _LAST_ROW]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main(path: str, target: str, last: str) -> None:
    entry = Source._entry

    def dying(self: Source, row: int) -> Entry:
        if row == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        return entry(self, row)

    Source._entry = dying  # type: ignore[method-assign]
    source.BATCH_ROWS = 16  # so that three batches are written
    with Reporter(quiet=True) as report:
        export(open_bundle(path), target, None, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
