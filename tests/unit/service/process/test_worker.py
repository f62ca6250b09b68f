"""What waits at the socket that workers share is shared out."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from itertools import pairwise

from service.process.worker import TAKEN_AT_ONCE, Shared


def test_a_worker_takes_one_connection_at_a_time_and_has_all_wait_that_come() -> None:
    """40 wait: after each turn of the event loop at most two more are taken, in between another worker may."""
    taken: list[asyncio.BaseTransport] = []
    seen: list[int] = []

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.append(transport)

    async def turns(listening: Shared, stack: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            Taken, sock=listening, backlog=TAKEN_AT_ONCE, start_serving=False
        )
        listening.listen()
        for _ in range(40):
            stack.enter_context(socket.create_connection(listening.getsockname(), timeout=5))
        await server.start_serving()
        while len(taken) < 40:
            await asyncio.sleep(0)
            seen.append(len(taken))
        server.close()
        for transport in taken:
            transport.close()
        await asyncio.sleep(0.01)

    with ExitStack() as stack, Shared() as listening:
        listening.bind(("127.0.0.1", 0))
        asyncio.run(asyncio.wait_for(turns(listening, stack), 30))
    steps = [now - was for was, now in pairwise([0, *seen])]
    assert sum(steps) == 40
    assert max(steps) <= 2
