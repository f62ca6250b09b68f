from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import FullrankError
from fullrank_fleet.partitions import PARTITIONS, partition_of, runs_of, shard_of


def test_partitions_of_known_ids() -> None:
    # Stored sets depend on these: a change would look for documents in the wrong shard.
    assert [partition_of(id) for id in ("apple", "bread", "りんご")] == [
        int(blake2b(id.encode(), digest_size=8).hexdigest(), 16) % 4096
        for id in ("apple", "bread", "りんご")
    ]
    assert partition_of("apple") == 3807


@given(st.integers(1, PARTITIONS))
def test_runs_share_out_all_partitions_evenly(shards: int) -> None:
    runs = runs_of(shards)
    assert [partition for run in runs for partition in run] == list(range(PARTITIONS))
    lengths = {len(run) for run in runs}
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 300), st.integers(0, PARTITIONS - 1))
def test_a_partition_is_in_the_run_of_its_shard(shards: int, partition: int) -> None:
    runs = runs_of(shards)
    assert partition in runs[shard_of(partition, runs)]


@pytest.mark.parametrize("shards", [0, -1, PARTITIONS + 1])
def test_an_impossible_number_of_shards_is_refused(shards: int) -> None:
    with pytest.raises(FullrankError, match="from 1 to 4,096"):
        runs_of(shards)


def test_ids_that_look_alike_spread_evenly() -> None:
    counts = [0] * 16
    runs = runs_of(16)
    for number in range(16_000):
        counts[shard_of(partition_of(f"doc-{number}"), runs)] += 1
    # Binomial: mean 1,000, standard deviation 30.6; six of them.
    assert all(816 <= count <= 1184 for count in counts)
