"""Run `fullrank` commands as forks of one process that has imported all of their code.

A command of its own process imports for up to two seconds, and the pages have hundreds. Started as a program, this file
is that process: it listens on a Unix socket. bin/fullrank sends it its arguments, folder, environment and streams, then
the signals that it gets, and exits with the code that comes back. A command whose caller is gone is ended.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tests.waiting import wait_until

# A service replaces itself by a new process unless these were set before numpy was imported.
THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
_IMPORTED = (
    "fullrank.cli", "fullrank_trainer.train", "fullrank_trainer.commands.importing",
    "fullrank_trainer.commands.retrain", "fullrank_service.app", "fullrank_service.process.run",
)  # fmt: skip
_GRACE_S = 15


@contextmanager
def fork_server(folder: Path) -> Iterator[Path]:
    """Start the process; give its socket."""
    path = folder / "fork.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.forking", path],
        cwd=ROOT, env={**os.environ, **THREADS}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: path.exists() or process.poll() is not None, "commands can be forked")
        assert process.poll() is None
        yield path
    finally:
        process.kill()
        process.wait()


def _listen(path: str) -> None:
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(16)
        os.rename(f"{path}.new", path)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(caller)
            caller.close()


def _answer(caller: socket.socket) -> None:
    """Run the command of a caller in a fork, pass signals on to it, and send its exit code."""
    data, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    command = os.fork()
    if command == 0:
        caller.close()
        _run(json.loads(data), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(command)
    while ended not in (ready := select.select([ended, caller.fileno()], [], [])[0]):
        assert ready
        number = caller.recv(1)
        os.kill(command, number[0] if number else signal.SIGTERM)
        if not number:
            if not select.select([ended], [], [], _GRACE_S)[0]:
                os.kill(command, signal.SIGKILL)
            break
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    caller.send(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(command: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the parent keep whether it can seek in them.
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.chdir(str(command["folder"]))
    os.environ.clear()
    os.environ |= command["environment"]
    sys.argv = ["fullrank", *command["arguments"]]
    code: object = 1
    try:
        import_module("fullrank.cli").main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # An interpreter with all of these modules takes a second to end.
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _listen(sys.argv[1])
