"""Connections that wait at the shared socket are distributed over the workers."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from itertools import pairwise

from fullrank_service.process.worker import ACCEPTED_AT_ONCE, SharedSocket


def test_a_worker_accepts_one_connection_at_a_time_and_the_rest_stays_queued() -> None:
    """Of 40 waiting connections each turn of the event loop accepts at most two; other workers can accept the rest."""
    accepted: list[asyncio.BaseTransport] = []
    seen: list[int] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def turns(listening: SharedSocket, stack: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            Accepted, sock=listening, backlog=ACCEPTED_AT_ONCE, start_serving=False
        )
        listening.listen()
        for _ in range(40):
            stack.enter_context(socket.create_connection(listening.getsockname(), timeout=5))
        await server.start_serving()
        async with asyncio.timeout(30):
            while len(accepted) < 40:
                await asyncio.sleep(0)
                seen.append(len(accepted))
        server.close()
        for transport in accepted:
            transport.close()
        await asyncio.sleep(0.01)

    with ExitStack() as stack, SharedSocket() as listening:
        listening.bind(("127.0.0.1", 0))
        asyncio.run(turns(listening, stack))
    steps = [now - was for was, now in pairwise([0, *seen])]
    assert sum(steps) == 40
    assert max(steps) <= 2
