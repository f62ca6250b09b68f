"""One worker process of several, as the supervisor starts it.

python -m service.process.worker FACTORY LISTENING TO_SUPERVISOR      the last two: descriptors it inherits
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

# Of the event loop's ticks, so many are told to the supervisor as one.
_BEAT = 10
# Connections that wait to be taken at most; the kernel may allow fewer.
_WAITING = 2048
# And so many are taken each time that a worker hears of some: what else waits may then go to another. Who took all
# would have to keep them, and the others would have nothing to do.
TAKEN_AT_ONCE = 1


def start(factory: str, listening: socket.socket, supervisor: int) -> subprocess.Popen[bytes]:
    """A new worker; the supervisor's side."""
    listening_fd = listening.fileno()
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "service.process.worker",
            factory,
            str(listening_fd),
            str(supervisor),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[listening_fd, supervisor],
    )


def main() -> None:
    """Serve until told to stop, or until the supervisor is gone."""
    factory, listening, supervisor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pair = socket.socket(fileno=supervisor)
    # Ctrl-C reaches the supervisor too, which tells us to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before anything slow is imported: a supervisor that dies meanwhile must not leave us behind.
    threading.Thread(target=_watch, args=(pair,), daemon=True).start()
    import uvicorn

    from service.process.configured import configured
    from service.settings import Settings

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            # Ten times a second; the first time when the app has started.
            if counter % _BEAT == 0:
                with suppress(OSError):
                    pair.send(b".", socket.MSG_DONTWAIT)
            return await super().on_tick(counter)

    config = configured(factory, Settings())
    config.backlog = TAKEN_AT_ONCE
    Server(config).run(sockets=[Shared(fileno=listening)])


class Shared(socket.socket):
    """A listening socket that is not one worker's alone: how many may wait at it is not for asyncio to say."""

    def listen(self, _: int = 0, /) -> None:
        super().listen(_WAITING)


def _watch(pair: socket.socket) -> None:
    with suppress(OSError):
        while pair.recv(64):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
