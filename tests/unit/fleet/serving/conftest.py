"""Fixtures of the tests of a fleet's answers; those of a set are of the corpus ``whole`` of the module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.api.support import Client
from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
from tests.unit.fleet.serving.equality import FailingShards, Whole, opened, sides


@pytest.fixture(scope="module")
def shards(whole: Whole) -> Iterator[dict[str, FailingShards]]:
    """The shards of the sets of all cuts, by address."""
    with opened(whole) as found:
        yield found


@pytest.fixture(scope="module")
async def clients(whole: Whole, shards: dict[str, FailingShards]) -> AsyncIterator[list[Client]]:
    """The unsharded service, then the routers."""
    async with sides(whole, shards) as found:
        yield found
