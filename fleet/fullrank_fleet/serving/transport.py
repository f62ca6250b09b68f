"""How a router reaches the shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Failure(NamedTuple):
    """A shard that has not answered.

    Attributes:
        reason: Why, for the log and for operators.
    """

    reason: str


class Shards(Protocol):
    """The shards of one set, by number."""

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        """Ask some shards at once.

        Args:
            payloads: What to send to each shard: an Ask, packed (wire.py).
            deadline_s: Seconds until a shard that has not answered counts as failed.

        Returns:
            For each shard asked what ``ShardServer.answer`` returned, or why there is no answer. No failure of a
            shard raises. If the caller is cancelled, calls that have not begun never do.
        """
