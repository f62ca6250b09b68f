"""Queries are cut by the hash of their ids, whatever else is in the collection."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.errors import FullrankError
from fullrank_fleet.partitions import PARTITIONS, partition_of
from fullrank_fleet.training.inputs import cut_queries, part_of

IDS = [f"query {number}" for number in range(2000)]


@pytest.mark.parametrize("slices", [1, 3, 4, 16, 4096])
def test_each_query_is_in_the_slice_of_its_hash(slices: int) -> None:
    rows = np.arange(0, 2000, 2)
    found = cut_queries(rows, IDS, slices)
    assert len(found) == slices
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), rows)
    for number, queries in enumerate(found):
        assert queries.dtype == np.int64
        assert (np.diff(queries) > 0).all()
        for row in queries.tolist():
            first, last = (-(-PARTITIONS * k // slices) for k in (number, number + 1))
            assert partition_of(IDS[row]) in range(PARTITIONS * number // slices, last), first


def test_slices_are_about_as_large_as_each_other() -> None:
    sizes = [len(queries) for queries in cut_queries(np.arange(2000), IDS, 4)]
    assert max(sizes) - min(sizes) < 100  # five standard deviations of a fair draw: 97


def test_a_query_stays_in_its_slice_when_others_come() -> None:
    few = cut_queries(np.arange(100), IDS[:100], 8)
    many = cut_queries(np.arange(2000), IDS, 8)
    for before, after in zip(few, many, strict=True):
        np.testing.assert_array_equal(before, after[after < 100])


@pytest.mark.parametrize("slices", [0, 4097])
def test_too_few_or_too_many_slices_are_refused(slices: int) -> None:
    with pytest.raises(FullrankError, match="from 1 to 4,096"):
        cut_queries(np.arange(3), IDS, slices)


@pytest.mark.parametrize("parts", [1, 2, 7, 30])
def test_the_parts_of_an_epoch_have_every_query_once(parts: int) -> None:
    queries = np.arange(5, 35)
    found = [part_of(queries, part, parts, [1, 2]) for part in range(parts)]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), queries)
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert all((np.diff(part) > 0).all() for part in found)


def test_another_epoch_has_other_parts() -> None:
    first, second = (part_of(np.arange(100), 0, 4, [seed, 0]) for seed in (1, 2))
    assert set(first.tolist()) != set(second.tolist())
