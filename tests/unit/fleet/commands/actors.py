"""A coordinator actor without Ray, for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fullrank_fleet.serving.coordinator import Snapshot

RAY = "10.0.0.1:6379"


@dataclass(frozen=True)
class Remote:
    actor: Actor
    name: str

    def remote(self, *arguments: Any) -> Any:
        return self.actor.call(self.name, *arguments)


class Actor:
    """A coordinator that notes what it is asked for; a change leaves what it serves as it is.

    Attributes:
        dying, freezing: Methods at which it dies, or freezes.
        refusing: How many calls Ray refuses yet, because it starts the actor again.
    """

    def __init__(self, served: Snapshot) -> None:
        self.served = served
        self.asked: list[tuple[Any, ...]] = []
        self.dying: set[str] = set()
        self.freezing: set[str] = set()
        self.is_frozen = False
        self.raising: dict[str, Exception] = {}
        self.refusing = 0

    def __getattr__(self, name: str) -> Remote:
        return Remote(self, name)

    async def call(self, name: str, *arguments: Any) -> Any:
        if name != "ping":
            self.asked.append((name, *arguments))
        if name != "ping" and self.refusing:
            self.refusing -= 1
            raise ConnectionError("ActorUnavailableError: the actor is restarting")
        if name in self.raising:
            raise self.raising[name]
        if name in self.dying:
            raise ConnectionError("ActorDiedError: the actor died")
        self.is_frozen = self.is_frozen or name in self.freezing
        if self.is_frozen:
            await asyncio.sleep(3600)
        return None if name == "ping" else self.served

    @property
    def changes(self) -> list[tuple[Any, ...]]:
        return [one for one in self.asked if one[0] != "follow"]


@contextmanager
def joined(address: str) -> Iterator[None]:
    assert address == RAY
    yield
