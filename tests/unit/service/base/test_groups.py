"""Group commit: what happens to the requests when writing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fullrank_service.base.background import GroupCommit

pytestmark = pytest.mark.anyio


async def test_an_unexpected_failure_fails_its_group_and_no_later_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def commit(items: Sequence[int]) -> Sequence[int]:
        return [12 // item for item in items]

    failed: list[str] = []
    groups = GroupCommit("test", commit, most=1, failed=failed.append)
    async with asyncio.timeout(10):
        waiting = [asyncio.create_task(groups.submit(item)) for item in (3, 0, 4)]
        found = await asyncio.gather(*waiting, return_exceptions=True)
    groups.close()
    assert [found[0], found[2]] == [4, 3]
    assert isinstance(found[1], ZeroDivisionError)
    assert failed == ["test"]
    [line] = [
        record for record in caplog.records if record.name == "fullrank_service.base.background"
    ]
    assert line.exc_info is not None
