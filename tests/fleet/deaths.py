"""Nodes of a cluster that die while a job runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import LONG_S, join

_DEADLINE_S = 120.0


@contextmanager
def node_dies_at(cluster: Any, folder: Path, pattern: str) -> Iterator[None]:
    """Add a node, and kill it once a file that matches a pattern lies in a folder; fail if none ever does."""
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    is_seen = []

    def kill() -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            if list(folder.glob(pattern)):
                is_seen.append(True)
                break
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, name=f"kills a node at {pattern}", daemon=True)
    killer.start()
    try:
        yield
    finally:
        join(killer, seconds=_DEADLINE_S + LONG_S)
    assert is_seen, f"no {pattern} in {folder}"
