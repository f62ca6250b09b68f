"""The server of a process."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest
import uvicorn
from fastapi import FastAPI

from fullrank_service.process.worker import Server

_seen: dict[str, bool] = {}


def create_app() -> FastAPI:
    """Make an app that notes whether garbage is searched for, and ends as soon as it serves."""
    _seen["import"] = gc.isenabled()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        _seen["start"] = gc.isenabled()
        yield

    return FastAPI(lifespan=lifespan)


class _Ending(Server):
    async def on_tick(self, counter: int) -> bool:
        _seen["serve"] = gc.isenabled()
        return True


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[mock.Mock]:
    """What the server sets; the thresholds of the tests stay as they are."""
    with mock.patch.object(gc, "set_threshold") as found:
        yield found


def test_garbage_is_searched_for_once_the_app_has_started(thresholds: mock.Mock) -> None:
    young, middle, old = gc.get_threshold()
    try:
        _Ending(uvicorn.Config(create_app, factory=True, port=0, log_config=None)).run()
        thresholds.assert_called_once_with(young, middle, 100)
        assert old < 100
        assert _seen == {"import": False, "start": False, "serve": True}
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_what_is_imported_is_not_searched_and_what_the_start_loads_is() -> None:
    loaded: list[object] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loaded.append([])
        yield

    app = FastAPI(lifespan=lifespan)
    try:
        _Ending(uvicorn.Config(app, port=0, log_config=None)).run()
        searched = {id(one) for one in gc.get_objects()}  # what is frozen is not among them
        assert id(app) not in searched
        assert id(loaded[0]) in searched
    finally:
        gc.unfreeze()
