"""Connections that wait at the shared socket are distributed over the workers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest
import uvloop

from fullrank_service.process.worker import SharedSocket


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_worker_accepts_one_connection_at_a_time_and_the_rest_stays_queued(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Of 40 waiting connections each turn of the event loop accepts at most two; other workers can accept the rest."""
    accepted: list[asyncio.BaseTransport] = []
    seen: list[int] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def turns(listening: SharedSocket, stack: ExitStack) -> None:
        for _ in range(40):
            stack.enter_context(socket.create_connection(listening.getsockname(), timeout=5))
        listening.accept_for(Accepted)
        async with asyncio.timeout(30):
            while len(accepted) < 40:
                await asyncio.sleep(0)
                seen.append(len(accepted))
        asyncio.get_running_loop().remove_reader(listening)
        for transport in accepted:
            transport.close()
        await asyncio.sleep(0.01)

    with (
        ExitStack() as stack,
        SharedSocket() as listening,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen(40)
        runner.run(turns(listening, stack))
    steps = [now - was for was, now in pairwise([0, *seen])]
    assert sum(steps) == 40
    assert max(steps) <= 2
