"""How many different values all shards have: exact while they are few, within the stated error beyond."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.filters.columns import Kind
from fullrank.filters.columns.table import ColumnPart
from fullrank_fleet.jobs import facts as values
from fullrank_fleet.jobs.facts import K, ValueSample

MIXED = st.one_of(st.booleans(), st.floats(-9, 9).map(lambda x: x + 0.0), st.text(max_size=2))


def parts_of(own: Sequence[Any]) -> dict[Kind, ColumnPart]:
    """The parts of a column with these values; booleans count as two, if there is any."""
    codes = np.zeros(0, np.int8)
    found: dict[Kind, ColumnPart] = {}
    if any(isinstance(value, bool) for value in own):
        found["boolean"] = ColumnPart((False, True), codes, None)
    numbers = {value for value in own if isinstance(value, float)}
    if numbers:
        found["number"] = ColumnPart(np.array(sorted(numbers)), codes, None)
    texts = sorted({value for value in own if isinstance(value, str)})
    if texts:
        found["keyword"] = ColumnPart(texts, codes, None)
    return found


@given(st.lists(st.lists(MIXED, max_size=30), max_size=5))
def test_few_values_are_counted_exactly(shards: list[list[Any]]) -> None:
    samples = [ValueSample.of(parts_of(own)) for own in shards]
    every = parts_of([value for own in shards for value in own])
    expected = sum(len(part.values) for part in every.values())
    assert ValueSample.merged(samples).distinct == expected


@given(st.lists(st.lists(st.text(max_size=2), max_size=30), min_size=3, max_size=6), st.data())
def test_the_order_of_merging_does_not_matter(shards: list[list[str]], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "K", 8)
        samples = [ValueSample.of(parts_of(own)) for own in shards]
        at_once = ValueSample.merged(samples)
        cut = data.draw(st.integers(1, len(samples) - 1))
        halves = [ValueSample.merged(samples[:cut]), ValueSample.merged(samples[cut:])]
        assert ValueSample.merged(halves) == at_once
        assert at_once.least <= at_once.distinct <= at_once.most


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_many_values_are_estimated(shared: float) -> None:
    rng = random.Random(7)
    common = [f"common {number}" for number in range(int(40_000 * shared))]
    shards = [
        [*common, *(f"{shard} {number}" for number in range(40_000 - len(common)))]
        for shard in range(3)
    ]
    for own in shards:
        rng.shuffle(own)
    found = ValueSample.merged(ValueSample.of(parts_of(own)) for own in shards).distinct
    expected = len({value for own in shards for value in own})
    # Four standard errors; the values, and so their hashes, are fixed.
    assert abs(found / expected - 1) < 4 / np.sqrt(K - 2)


def test_the_values_of_one_shard_are_counted_exactly() -> None:
    own = ValueSample.of(parts_of([f"{number}" for number in range(K + 10)]))
    assert own.distinct == ValueSample.merged([own]).distinct == K + 10
