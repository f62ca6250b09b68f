"""Worker processes that share a computation: a fresh interpreter runs one function, over a pipe to its starter.

Not multiprocessing: a fork after OpenMP has run may hang, and a spawned process imports the caller's main module, which
takes longer than a small corpus and never ends in a script without a main guard.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

from fullrank.errors import FullrankError, describe_exit

# How long a process whose pipe is closed may take to end, seconds.
_EXIT_S = 5


class Worker:
    """A process that runs one function, and a pipe to it. The process ends when the pipe is closed.

    Args:
        target: "module:function". The function gets its end of the pipe (a Connection); when the starter closes the
            other end, EOFError or OSError ends it silently.

    Example:
        with Worker("fullrank_trainer.indexing:encode", "encodes documents") as worker:
            worker.send(texts)
            encoded = worker.receive()
    """

    def __init__(self, target: str, task: str) -> None:
        self.task = task
        self._connection, theirs = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from fullrank_trainer.workers import main; main()",
                target,
                str(theirs.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # Imports come from where this process finds them. With -c alone Python would look into the working
            # directory first.
            env=os.environ
            | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"},
            # Ctrl-C interrupts only this process, which then stops its workers.
            start_new_session=True,
        )
        # Only the worker has the other end now, so its death reads as an end of file.
        theirs.close()

    def send(self, message: object) -> None:
        """Send a message, pickled. Raises FullrankError if the process has died."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._death() from error

    def receive(self) -> Any:
        """Wait for a message. Raises FullrankError if the process has died, and an exception that it sent."""
        try:
            message = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        if isinstance(message, Exception):
            raise message
        return message

    def has_message(self) -> bool:
        """Return whether ``receive`` would return or raise at once."""
        return self._connection.poll()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process at once and close the pipe."""
        self.kill()
        self._connection.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _death(self) -> FullrankError:
        try:
            ending = describe_exit(self.process.wait(_EXIT_S))
        except subprocess.TimeoutExpired:
            ending = "closed its pipe"
        return FullrankError(
            f"the process that {self.task} (pid {self.process.pid}) {ending}; is there enough memory?"
        )


def main() -> None:
    """Run the function named on the command line; called in the worker process."""
    module, _, function = sys.argv[1].partition(":")
    with suppress(EOFError, OSError), Connection(int(sys.argv[2])) as connection:
        getattr(import_module(module), function)(connection)
