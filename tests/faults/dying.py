"""The service with workers that kill themselves at one step of a swap.

    TEST_DIE=<file> python -m tests.faults.dying [--activate BUNDLES VERSION, as the command line would]

The file holds "<who> <step> <before|after>": the coordinator, or a follower in another process. It is removed by the
one that dies, so one dies.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullrank_service.base.settings import Settings
from fullrank_service.models import follower, swap
from fullrank_service.models.follower import Follower, LoadedModels
from fullrank_service.models.livefile import LiveFile
from fullrank_service.models.loader import Loader
from fullrank_service.models.state import STATE
from fullrank_service.models.swap import Swap
from fullrank_service.models.workers import Presence
from fullrank_service.process.run import run

if TYPE_CHECKING:
    from fastapi import FastAPI

FILE = "TEST_DIE"
# (object, name of the function) by step.
COORDINATOR = {
    "find": (swap, "find"),
    "propose": (swap, "propose"),
    "prepared": (Swap, "wait_until_prepared"),
    "sync": (os, "fsync"),
    "replace": (Path, "replace"),
    "state": (swap, "write_state"),
    "withdraw": (LiveFile, "close"),
    "settle": (Swap, "wait_until_settled"),
}
FOLLOWER = {
    "check": (follower, "read_proposal"),
    "load": (Loader, "open"),
    "prepare": (Follower, "prepare"),
    "report": (Presence, "publish"),
    "follow": (Follower, "follow"),
    "switch": (LoadedModels, "switch"),
}
# Some steps also happen at start or all the time: they count only while the process takes part in a swap.
_taking_part = {"coordinator": False, "follower": False}


def create_app() -> FastAPI:
    from fullrank_service import (
        app,  # the command line needs no app, and importing one takes half a second
    )

    arm()
    return app.create_app()


def arm() -> None:
    for who, steps in (("coordinator", COORDINATOR), ("follower", FOLLOWER)):
        for step, (owner, name) in steps.items():
            setattr(owner, name, _mortal(getattr(owner, name), who, step))
    _marking(Swap, "run", "coordinator")
    come_up = Follower.start

    def start(self: Follower) -> None:
        come_up(self)
        _taking_part["follower"] = True

    Follower.start = start  # type: ignore[method-assign]


def _marking(owner: Any, name: str, who: str) -> None:
    real = getattr(owner, name)

    def marked(*arguments: Any, **named: Any) -> Any:
        _taking_part[who] = True
        try:
            return real(*arguments, **named)
        finally:
            _taking_part[who] = False

    setattr(owner, name, marked)


def _mortal(real: Callable[..., Any], who: str, step: str) -> Callable[..., Any]:
    def mortal(*arguments: Any, **named: Any) -> Any:
        if step == "replace" and not arguments[0].name.startswith(f".{STATE}."):
            return real(*arguments, **named)
        _die(f"{who} {step} before")
        result = real(*arguments, **named)
        # A check that finds no proposal is not a step of a swap.
        if step != "check" or result is not None:
            _die(f"{who} {step} after")
        return result

    return mortal


def _die(at: str) -> None:
    who = at.split()[0]
    other = who == "follower" and _taking_part["coordinator"]
    if not _taking_part[who] or other:
        return
    file = Path(os.environ[FILE])
    try:
        if file.read_text() != at:
            return
        file.unlink()
    except FileNotFoundError:
        return  # another has died
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--activate"]:
        arm()
        Swap(Path(sys.argv[2])).activate(sys.argv[3])
    else:
        run("tests.faults.dying:create_app", Settings())
