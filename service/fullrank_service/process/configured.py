"""How uvicorn serves an app in a worker."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys

import uvicorn

from fullrank_service.process.connection import Connection
from fullrank_service.settings import Settings
from fullrank_service.telemetry import logs

# uvicorn ticks ten times a second.
TICKS_A_SECOND = 10

# How long a stopping worker may take for the answers that it has begun, seconds.
FINISH_S = 10
# How long a ranking thread may keep the interpreter while the event loop waits for it, seconds. A refusal waits for it
# twice, and would take up to 10 ms with Python's default of 5 ms.
_SWITCH_INTERVAL_S = 0.001
# Pause between two looks for a signal while the app starts, seconds.
_LOOK_S = 0.1
# Searches of younger objects for garbage until all objects are searched, which takes up to 0.1 s while the caches of
# queries fill. Hardly any garbage lives so long. Python's default is 10.
_SEARCHES_UNTIL_ALL = 100


def configured(factory: str, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration for the app that ``factory``, "module:function", makes.

    Sets up logging and the switch interval of threads too.
    """
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

    Nor does it ever search what it imports. Several hundred thousand objects would take a tenth of a second each time,
    while all requests wait. Models are loaded later, and searched, because they can be replaced.
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
        while not (await asyncio.wait([starting], timeout=_LOOK_S))[0]:
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
