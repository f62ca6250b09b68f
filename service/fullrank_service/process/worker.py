"""A worker process, as the supervisor forks it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from functools import partial

from fullrank_service.process.forked import Forked

# Length of the queue of connections that wait to be accepted; the kernel may allow fewer.
QUEUE_LENGTH = 2048
# Connections accepted in one turn of the event loop. The rest stays in the queue, where another worker can take it;
# a worker that took all of them would leave the others without work.
ACCEPTED_AT_ONCE = 1
# A filter of the kernel (struct sock_filter): of the TCP flags, at byte 13, drop those with SYN and without ACK.
_SO_ATTACH_FILTER = 26
_NO_NEW_CONNECTIONS = b"".join(
    struct.pack("HBBI", *step)
    for step in (
        (0x30, 0, 0, 13),
        (0x54, 0, 0, 0x12),
        (0x15, 0, 1, 0x02),
        (0x06, 0, 0, 0),
        (0x06, 0, 0, 0xFFFFFFFF),
    )
)
# How long a handshake that has begun may take, the event loops to accept the queue, and the pause between two looks at
# it, seconds.
_HANDSHAKE_S, _EMPTY_S, _LOOK_S = 0.2, 2.0, 0.05


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
    all_stop = threading.Event()
    threading.Thread(target=_follow_supervisor, args=(pair, all_stop), daemon=True).start()
    from fullrank_service.process.configured import TICKS_A_SECOND, Server, configured
    from fullrank_service.settings import Settings
    from fullrank_service.telemetry import sharing

    shared = SharedSocket(fileno=listening)

    class Worker(Server):
        async def on_tick(self, counter: int) -> bool:
            # The first tick comes when the app has started.
            if counter % TICKS_A_SECOND == 0:
                with suppress(OSError):
                    pair.send(b".", socket.MSG_DONTWAIT)
            return await super().on_tick(counter)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # If this worker stops alone, others accept what is in the queue.
            if all_stop.is_set():
                await shared.empty_queue()
            await super().shutdown(sockets)

    config = configured(factory, Settings())
    config.backlog = ACCEPTED_AT_ONCE
    sharing.join(str(number))
    Worker(config).run(sockets=[shared])


class SharedSocket(socket.socket):
    """A listening socket of all workers: asyncio's backlog sets how many it accepts at once, not its queue."""

    def listen(self, _: int = 0, /) -> None:
        super().listen(QUEUE_LENGTH)

    async def empty_queue(self) -> None:
        """Let no further connection into the queue of any worker, and wait until the event loops have accepted all.

        The kernel resets connections that are in the queue of a closed socket. Clients whose connections it keeps out
        try again, and are refused as soon as the socket is closed.
        """
        steps = ctypes.create_string_buffer(_NO_NEW_CONNECTIONS)
        program = struct.pack("HP", len(_NO_NEW_CONNECTIONS) // 8, ctypes.addressof(steps))
        with suppress(OSError):  # a kernel without filters
            self.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        await asyncio.sleep(_HANDSHAKE_S)
        queue = select.poll()
        queue.register(self, select.POLLIN)
        end = time.monotonic() + _EMPTY_S
        while queue.poll(0) and time.monotonic() < end:
            await asyncio.sleep(_LOOK_S)
        # uvicorn gets an accepted connection a few turns of the event loop later.
        await asyncio.sleep(_LOOK_S)


def _follow_supervisor(pair: socket.socket, all_stop: threading.Event) -> None:
    """End this process when the supervisor dies; until then, it says when all workers are to stop."""
    with suppress(OSError):
        while pair.recv(64):
            all_stop.set()
    all_stop.set()
    os.kill(os.getpid(), signal.SIGTERM)
