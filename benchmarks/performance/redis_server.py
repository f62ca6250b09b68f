"""A real Redis server that a test can kill, suspend and restart."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Redis:
    """A Redis on a Unix socket that can be killed, stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start a new process on the same socket."""
        self.socket.unlink(missing_ok=True)
        found = shutil.which("redis-server")
        if found is None:
            raise FileNotFoundError("redis-server is not on PATH; install the package redis-server")
        options = ["--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self._process = subprocess.Popen(
            [
                found,
                *options,
                "--dir",
                str(self._folder),
                "--maxmemory",
                "64mb",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """Suspend the process, so that clients wait."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_in(folder: Path) -> Iterator[Redis]:
    """Run a Redis in a folder; kill it at the end."""
    redis = Redis(folder)
    try:
        yield redis
    finally:
        redis.kill()
