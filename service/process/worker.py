"""One worker process of several, as the supervisor starts it.

python -m service.process.worker FACTORY LISTENING SUPERVISOR NUMBER    LISTENING and SUPERVISOR: inherited descriptors
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

# uvicorn ticks ten times a second; a byte goes to the supervisor at every tenth.
_TICKS_PER_BEAT = 10
# Length of the queue of connections that wait to be accepted; the kernel may allow fewer.
QUEUE_LENGTH = 2048
# Connections accepted in one turn of the event loop. The rest stays in the queue, where another worker can take it;
# a worker that took all of them would leave the others without work.
ACCEPTED_AT_ONCE = 1


def start(
    factory: str, listening: socket.socket, supervisor: int, number: int
) -> subprocess.Popen[bytes]:
    """Start a worker process; called by the supervisor."""
    descriptors = [listening.fileno(), supervisor]
    arguments = [factory, *map(str, descriptors), str(number)]
    return subprocess.Popen(
        [sys.executable, "-m", "service.process.worker", *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=descriptors,
    )


def main() -> None:
    """Serve until a signal, or until the supervisor is dead."""
    factory, listening, supervisor, number = sys.argv[1], *map(int, sys.argv[2:5])
    pair = socket.socket(fileno=supervisor)
    # Ctrl-C reaches the supervisor too, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before the slow imports, so that a supervisor that dies meanwhile does not leave this process behind.
    threading.Thread(target=_end_with_supervisor, args=(pair,), daemon=True).start()
    from service.process.configured import Server, configured
    from service.settings import Settings
    from service.telemetry import sharing

    class Worker(Server):
        async def on_tick(self, counter: int) -> bool:
            # The first tick comes when the app has started.
            if counter % _TICKS_PER_BEAT == 0:
                with suppress(OSError):
                    pair.send(b".", socket.MSG_DONTWAIT)
            return await super().on_tick(counter)

    config = configured(factory, Settings())
    config.backlog = ACCEPTED_AT_ONCE
    sharing.join(str(number))
    Worker(config).run(sockets=[SharedSocket(fileno=listening)])


class SharedSocket(socket.socket):
    """A listening socket of all workers: asyncio's backlog sets how many it accepts at once, not its queue."""

    def listen(self, _: int = 0, /) -> None:
        super().listen(QUEUE_LENGTH)


def _end_with_supervisor(pair: socket.socket) -> None:
    with suppress(OSError):
        while pair.recv(64):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
