"""One worker process of several, as the supervisor forks it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from functools import partial

from service.process.forked import Forked

# Length of the queue of connections that wait to be accepted; the kernel may allow fewer.
QUEUE_LENGTH = 2048
# Connections accepted in one turn of the event loop. The rest stays in the queue, where another worker can take it;
# a worker that took all of them would leave the others without work.
ACCEPTED_AT_ONCE = 1


def start(factory: str, listening: socket.socket, supervisor: int, number: int) -> Forked:
    """Fork a worker process; called by the supervisor."""
    work = partial(_serve, factory, listening.fileno(), supervisor, number)
    return Forked(work, kept=(listening.fileno(), supervisor))


def _serve(factory: str, listening: int, supervisor: int, number: int) -> None:
    """Serve until a signal, or until the supervisor is dead."""
    pair = socket.socket(fileno=supervisor)
    # Ctrl-C reaches the supervisor too, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # First, so that a supervisor that dies while the app starts does not leave this process behind.
    threading.Thread(target=_end_with_supervisor, args=(pair,), daemon=True).start()
    from service.process.configured import TICKS_A_SECOND, Server, configured
    from service.settings import Settings
    from service.telemetry import sharing

    class Worker(Server):
        async def on_tick(self, counter: int) -> bool:
            # The first tick comes when the app has started.
            if counter % TICKS_A_SECOND == 0:
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
