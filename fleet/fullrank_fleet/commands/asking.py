"""Ask the coordinator of the joined cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fullrank.errors import FullrankError
from fullrank_fleet.serving.actors import answer_of
from fullrank_fleet.serving.coordinator import CHANGE_S
from fullrank_fleet.serving.tracking import START_S
from fullrank_fleet.serving.waiting import NoAnswer, answered

# Pause before a coordinator that has died is asked again.
_PAUSE_S = 0.2
# By method, the change of which the caller cannot know whether it was made when the coordinator dies.
_CHANGES = {
    "activate": "swap",
    "start_experiment": "change",
    "stop_experiment": "change",
    "scale": "change",
}


def ask(coordinator: Any, method: str, *arguments: Any, is_starting: bool = False) -> Any:
    """Call a method of the coordinator, and wait for the answer for as long as it answers pings.

    A change is asked for once, because the coordinator may have made it before it died.

    Args:
        coordinator: The actor.
        method: Of ``Coordinator``.
        arguments: Of the method.
        is_starting: Whether its process may have to start first.

    Raises:
        FullrankError: As the coordinator raises it; or it has died, or does not answer.
    """
    silent_s = START_S if is_starting else None

    async def wait() -> Any:
        return await answered(
            answer_of(getattr(coordinator, method).remote(*arguments)),
            lambda: answer_of(coordinator.ping.remote()),
            limit_s=CHANGE_S,
            silent_s=silent_s,
        )

    try:
        return asyncio.run(wait() if method in _CHANGES else _alive(wait))
    except NoAnswer as error:
        raise FullrankError(
            f"the coordinator of the fleet does not answer: {error}; what it was asked for it may still do"
        ) from error
    except ConnectionError as error:
        raise FullrankError(
            f"the coordinator died{_doubt(method)}; run the command again"
        ) from error


async def _alive(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the coordinator is there: Ray refuses calls while it starts one again that has died."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return await ask()
        except NoAnswer:
            raise
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


def _doubt(method: str) -> str:
    """Say what is unknown after the death of the coordinator."""
    change = _CHANGES.get(method)
    return "" if change is None else f" during the {change}, which is done or has changed nothing"
