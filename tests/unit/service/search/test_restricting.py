"""The cache of filter results: the same bitmaps, within its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fullrank.filters.columns import Columns, columns_of
from fullrank.filters.query import matching
from fullrank_service.search.restricting import Bitmaps

ROWS = 1000


def stub(key: str, step: int = 1) -> tuple[str, Columns]:
    return key, columns_of({"n": i * step} for i in range(ROWS))


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every filter that is evaluated, not found in the cache."""
    asked: list[Any] = []
    original = matching

    def counted(condition: Any, columns: Columns) -> Any:
        asked.append(condition)
        return original(condition, columns)

    monkeypatch.setattr("fullrank_service.search.restricting.matching", counted)
    return asked


def test_a_filter_is_evaluated_once_for_each_bundle(evaluated: list[Any]) -> None:
    memory = Bitmaps(1 << 20)
    one, other = stub("one"), stub("other", step=2)
    for _ in range(3):
        assert memory.matching(*one, {"n": {"lt": 10}}, "filter").sum() == 10
        assert memory.matching(*other, {"n": {"lt": 10}}, "filter").sum() == 5
    assert len(evaluated) == 2
    # The order of keys makes no difference.
    memory.matching(*one, {"n": {"lt": 10, "gte": 5}}, "filter")
    memory.matching(*one, {"n": {"gte": 5, "lt": 10}}, "filter")
    assert len(evaluated) == 3


def test_a_cached_bitmap_is_read_only() -> None:
    mask = Bitmaps(1 << 20).matching(*stub("one"), {}, "filter")
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = False


def test_the_least_recently_used_result_goes_first(evaluated: list[Any]) -> None:
    memory = Bitmaps(2 * (ROWS + 512))
    bundle = stub("one")
    for n in (1, 2, 1, 3, 1):
        memory.matching(*bundle, {"n": n}, "filter")
    assert len(evaluated) == 3
    memory.matching(*bundle, {"n": 2}, "filter")
    assert len(evaluated) == 4


@pytest.mark.parametrize("max_bytes", [0, ROWS])
def test_a_result_larger_than_the_cache_is_not_cached(evaluated: list[Any], max_bytes: int) -> None:
    memory = Bitmaps(max_bytes)
    bundle = stub("one")
    found = [memory.matching(*bundle, {"n": 1}, "filter") for _ in range(2)]
    assert len(evaluated) == 2
    np.testing.assert_array_equal(found[0], found[1])
