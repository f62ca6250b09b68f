"""SIGTERM without a dropped request: say so at /readyz, let callers notice, then let the server stop as it does.

The server's own handler closes the door, ends idle connections, and waits for the answers under way, for so long at
most. In front of it comes this one, which only turns the worker to draining and passes the signal on after a while.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType

from service.edge.admission import Admission


def drain_first(admission: Admission, delay_s: float) -> None:
    """Turn to draining at SIGTERM, and hand it to whoever handles it now after delay_s; a second one at once.

    Called on the event loop. Where nobody handles the signal, or on another thread than the main one, nothing changes.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        again, admission.draining = admission.draining, True
        if again or not delay_s:
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay_s, previous, number, None)

    signal.signal(signal.SIGTERM, handle)
