"""The routers that follow a coordinator, by what they have reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from fullrank_service.models.workers import Report

# A router that has not reported for so long counts as dead. A version is dropped once no router has used it for so
# long: longer than a request takes, and than a router waits before it reports again.
SILENT_S = 15.0
# The routers of a coordinator that died report to the next one within this time, unless they are dead.
_RETURN_S = 2.0


@dataclass(frozen=True, slots=True)
class _Heard:
    report: Report
    epoch: int
    at: float


class Routers:
    """What routers have reported."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}
        self._last_used: dict[str, float] = {}
        self._changed = asyncio.Condition()
        self._since = time.monotonic()
        self._complete_at = self._since

    def expect(self) -> None:
        """Expect the routers of the coordinator before: no change counts as settled until they had time to report."""
        self._complete_at = time.monotonic() + _RETURN_S

    async def note(self, report: Report, epoch: int) -> None:
        """Note the report of a router; epoch: of the snapshot that it follows."""
        now = time.monotonic()
        self._heard[report.id] = _Heard(report, epoch, now)
        self._last_used |= dict.fromkeys(report.loaded, now)
        async with self._changed:
            self._changed.notify_all()

    async def forget(self, id: str) -> None:
        """Forget a router that stops."""
        self._heard.pop(id, None)
        async with self._changed:
            self._changed.notify_all()

    @property
    def reports(self) -> list[Report]:
        """Those of the routers that live, in the order of their ids."""
        return [heard.report for _, heard in sorted(self._alive.items())]

    @property
    def used(self) -> Collection[str] | None:
        """The versions that requests may still ask for; None for as long as not every router can have reported."""
        if time.monotonic() - self._since <= SILENT_S:
            return None
        oldest = time.monotonic() - SILENT_S
        self._last_used = {own: used for own, used in self._last_used.items() if used > oldest}
        return self._last_used

    async def settled(
        self, epoch: int, versions: Collection[str], wait_s: float
    ) -> tuple[int, bool]:
        """Wait until every router follows a snapshot, or a later one, and has loaded its versions.

        Args:
            epoch: Of the snapshot.
            versions: Of the snapshot.
            wait_s: The longest wait.

        Returns:
            The number of routers, and whether all follow.
        """

        def is_done() -> bool:
            return all(
                heard.epoch >= epoch and set(versions) <= {*heard.report.loaded}
                for heard in self._alive.values()
            )

        await asyncio.sleep(self._complete_at - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(is_done)
        return len(self._alive), is_done()

    @property
    def _alive(self) -> dict[str, _Heard]:
        oldest = time.monotonic() - SILENT_S
        self._heard = {id: heard for id, heard in self._heard.items() if heard.at > oldest}
        return self._heard
