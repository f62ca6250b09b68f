"""What every engine gives: ten rows for a text, and the processes whose time that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Search = Callable[[str, int], Sequence[int]]
"""Text of a query and a limit → rows of documents, best first."""


@dataclass(frozen=True, eq=False)
class Engine:
    """A system with an index over all documents of a collection.

    Attributes:
        name: in the table.
        search: answers one query, from its text.
        settings: that the table names.
        processes: ids of servers whose processor time counts as well.
        ours: one of this project's systems.
    """

    name: str
    search: Search
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: Sequence[int] = ()
    ours: bool = False

    def cpu_seconds(self) -> float:
        """Return the processor time used so far by all threads of this process and of the servers."""
        return time.process_time() + sum(map(process_seconds, self.processes))


def process_seconds(process: int) -> float:
    """Return the processor time of all threads of a running process, in seconds.

    Linux numbers the processor clock of a process by its id, as clock_getcpuclockid(3) does.
    """
    return time.clock_gettime((~process << 3) | 2)
