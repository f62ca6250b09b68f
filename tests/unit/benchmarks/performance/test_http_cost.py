"""The cost of a request is measured on answers of the service itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.performance.http_cost import measure
from fullrank.live import View
from tests.bundles import make_bundle


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_both_routes_are_measured_and_ranking_is_put_back(
    tmp_path: Path,
) -> None:
    make_bundle(tmp_path, "small")
    before = View.search
    found = await measure(tmp_path, rounds=1)
    assert found.keys() == {"search", "empty"}
    assert min(found.values()) > 0
    assert View.search is before
