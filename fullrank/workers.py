"""Worker processes: a fresh interpreter that imports one module, and a connection to it.

Not multiprocessing: a fork after OpenMP has run may hang, and its spawn would import the caller's
main module, which costs a worker more time than a small corpus takes, and hangs a script without a
main guard.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe


@dataclass(frozen=True, eq=False)
class Worker:
    """A process and this process's end of a pipe to it; the worker ends when that end is closed."""

    connection: Connection
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, module: str) -> Worker:
        """A process that calls ``work(descriptor)`` of a module with the number of its end."""
        here, there = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        program = f"import sys; from {module} import work; work(int(sys.argv[1]))"
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            # Not what happens to lie in the working directory, where -c would look first.
            env=os.environ
            | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"},
            # Ctrl-C is this process's to answer.
            start_new_session=True,
        )
        # With the other end held by the worker alone, its death shows as an end of file.
        there.close()
        return cls(here, process)

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.wait()
