"""A worker process, as the supervisor forks it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from logging import getLogger

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fullrank_service.base import logs, sharing
from fullrank_service.base.settings import Settings
from fullrank_service.process.supervisor import Forked

_log = getLogger(__name__)

# A connection of a worker.
#
# Connections without a request in progress are closed when their place is needed, so they keep nobody out. Only
# requests in progress can use up the limit of connections.


# How long the head of a request may take, from the opening of the connection or from its first byte, seconds.
HEAD_S = 10.0
# The liveness probe: a worker that refuses it would be restarted.
_LIVENESS = b"/livez"
# How long a stopping worker waits for a request on each idle connection, seconds. A client may have sent one already.
LAST_REQUEST_S = 0.5
# This share of the idle connections is closed at once, because finding them takes a look at all.
_CLOSED_AT_ONCE = 1 / 32


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with a limit for the time without a request."""

    idle_since = 0.0
    _is_last = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress; one whose head is incomplete is not."""
        is_new = self.cycle is None
        return is_new or (self.cycle.response_complete and not self.pipeline)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close idle connections if there are too many."""
        self.idle_since = self.loop.time()
        super().connection_made(transport)
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) >= limit:
            self._make_room()

    def on_message_begin(self) -> None:
        """Begin to wait for the head of a request."""
        self.idle_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        is_liveness = self.url.partition(b"?")[0] == _LIVENESS
        self.limit_concurrency = None if is_liveness else self.config.limit_concurrency
        super().on_headers_complete()
        if self._is_last:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.idle_since = self.loop.time()
        super().on_response_complete()

    def close_if_silent(self) -> None:
        """Close a connection that has not sent the head of a request in time; called once a second."""
        # uvicorn's timer runs between an answer and the first byte of the next request.
        if self.is_idle and self.timeout_keep_alive_task is None:
            limit = min(HEAD_S, self.timeout_keep_alive)
            if self.loop.time() - self.idle_since > limit:
                self._close()

    def shutdown(self) -> None:
        """Close once the request in progress is answered, or one that arrives soon; called when the worker stops."""
        self._is_last = True
        if self.is_idle:
            self.loop.call_later(LAST_REQUEST_S, self._close_if_idle)
        else:
            super().shutdown()

    def _close_if_idle(self) -> None:
        if self.is_idle:
            self.transport.close()

    def _close(self) -> None:
        self.connections.discard(self)
        self.transport.close()

    def _make_room(self) -> None:
        """Close the connections that have been idle longest, first those that never sent a request."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, Connection) and other is not self and other.is_idle
        ]
        count = 1 + int(len(idle) * _CLOSED_AT_ONCE)
        for other in nsmallest(
            count, idle, key=lambda one: (one.cycle is not None, one.idle_since)
        ):
            other._close()


# uvicorn ticks ten times a second.
TICKS_A_SECOND = 10

# How long a stopping worker may take for the answers that it has begun, seconds.
FINISH_S = 10
# How long a ranking thread may keep the interpreter while the event loop waits for it, seconds. A refusal waits for it
# twice, and would take up to 10 ms with Python's default of 5 ms.
_SWITCH_INTERVAL_S = 0.001
# Pause between two looks for a signal while the app starts, seconds.
_DRAIN_LOOK_S = 0.1
# Searches of younger objects for garbage until all objects are searched, which takes up to 0.1 s while the caches of
# queries fill. Hardly any garbage lives so long. Python's default is 10.
_SEARCHES_UNTIL_ALL = 100


def configured(factory: str, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration for the app that a factory makes; set up logging and the switch of threads."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return uvicorn.Config(
        factory,
        factory=True,
        host=settings.host,
        port=settings.port,
        log_config=logs.configuration(settings.log_level, settings.log_format),
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        limit_concurrency=settings.max_connections + 1,  # the number at which uvicorn refuses
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=FINISH_S,
    )


class Server(uvicorn.Server):
    """A server that searches for no garbage while it starts: nearly all that it imports and loads is kept.

    Nor does it ever search what it imports, which would take a tenth of a second each time. Models are loaded later,
    and searched, because they can be replaced.
    """

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Import the app, start it and serve until a signal."""
        gc.disable()
        try:
            await super().serve(sockets)
        finally:
            gc.enable()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then accept connections. A signal to stop ends the start."""
        gc.freeze()
        starting = asyncio.create_task(super().startup(sockets))
        while not (await asyncio.wait([starting], timeout=_DRAIN_LOOK_S))[0]:
            if self.should_exit:
                return  # nothing was accepted, so nothing is lost with the process
        await starting
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _SEARCHES_UNTIL_ALL)
        gc.enable()

    async def on_tick(self, counter: int) -> bool:
        """Close silent connections once a second."""
        if counter % TICKS_A_SECOND == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.close_if_silent()
        return await super().on_tick(counter)


# Length of the queue of connections that wait to be accepted; the kernel may allow fewer.
QUEUE_LENGTH = 2048
# Pause before the next connection is accepted where the process has no file descriptor left, seconds.
_ACCEPT_PAUSE_S = 1.0
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
    pair = socket.socket(fileno=supervisor)
    # Ctrl-C reaches the supervisor too, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # First, so that a supervisor that dies while the app starts does not leave this process behind.
    all_stop = threading.Event()
    threading.Thread(target=_follow_supervisor, args=(pair, all_stop), daemon=True).start()
    shared = SharedSocket(fileno=listening)
    shared.setblocking(False)

    class Worker(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup([])  # uvicorn would accept too
            if self.started:
                protocol = partial(
                    Connection,
                    config=self.config,
                    server_state=self.server_state,
                    app_state=self.lifespan.state,
                )
                shared.accept_for(protocol)

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
            asyncio.get_running_loop().remove_reader(shared)
            await super().shutdown(sockets)

    config = configured(factory, Settings())
    sharing.join(str(number))
    Worker(config).run(sockets=[shared])


class SharedSocket(socket.socket):
    """A listening socket of all workers.

    A worker accepts one connection in a turn of its event loop. The rest stays in the queue, where another worker can
    take it; a worker that took all of them would leave the others without work.
    """

    def accept_for(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections on the running event loop until it no longer reads this socket."""
        loop, opening = asyncio.get_running_loop(), set[asyncio.Task[object]]()

        def accept() -> None:
            try:
                connection, _ = self.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # another worker was faster, or the client has gone
            except OSError as error:
                _log.error("cannot accept connections for %g s: %s", _ACCEPT_PAUSE_S, error)
                loop.remove_reader(self)
                loop.call_later(_ACCEPT_PAUSE_S, resume)
                return
            connection.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(protocol, connection))
            opening.add(task)
            task.add_done_callback(opening.discard)

        def resume() -> None:
            if self.fileno() >= 0:  # else the worker has stopped
                loop.add_reader(self, accept)

        loop.add_reader(self, accept)

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
