"""Find a free port for a server under test."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a loopback port that no process listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
