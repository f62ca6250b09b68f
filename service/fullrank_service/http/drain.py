"""Stop on SIGTERM without dropping a request: report it at /readyz, wait for clients to notice, then stop the server.

uvicorn's own handler closes the listening socket and idle connections, and waits a bounded time for open requests. The
handler installed here runs first: it marks the worker as draining and passes the signal on after a delay.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Drain:
    """Whether the worker has received SIGTERM."""

    started: bool = False


def drain_before_stop(drain: Drain, delay_s: float) -> None:
    """Mark the worker as draining on SIGTERM; call the previous handler delay_s later, or at once on a second signal.

    Call it on the event loop. It does nothing outside the main thread, or if no Python handler is installed.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        is_second, drain.started = drain.started, True
        if is_second or not delay_s:
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay_s, previous, number, None)

    signal.signal(signal.SIGTERM, handle)
