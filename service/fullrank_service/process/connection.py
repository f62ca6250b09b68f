"""A connection of a worker.

Connections without a request in progress are closed when their place is needed, so they keep nobody out. Only requests
in progress can use up the limit of connections.
"""

from __future__ import annotations

import asyncio
from heapq import nsmallest

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
        """Answer the request."""
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
