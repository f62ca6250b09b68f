"""Where Ray may put the replicas of a shard."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.serving.actors import spread_of


def node(cores: float | None, *, is_alive: bool = True) -> dict[str, Any]:
    """A node as Ray describes it; one without cores has no entry for them."""
    return {
        "Alive": is_alive,
        "Resources": {"memory": 1e9} | ({} if cores is None else {"CPU": cores}),
    }


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node(1.0), node(4.0)], "STRICT_SPREAD"),
        ([node(1.0), node(4.0), node(None)], "STRICT_SPREAD"),
        ([node(1.0)], "SPREAD"),
        # The head of a cluster that runs nothing but Ray itself.
        ([node(None), node(1.0)], "SPREAD"),
        ([node(0.0), node(1.0)], "SPREAD"),
        ([node(1.0, is_alive=False), node(1.0)], "SPREAD"),
        # Ray leaves a dead node without resources.
        ([{"Alive": False, "Resources": {}}, node(1.0), node(1.0)], "STRICT_SPREAD"),
    ],
)
def test_each_replica_gets_a_node_if_as_many_can_hold_one(
    nodes: list[dict[str, Any]], expected: str
) -> None:
    assert spread_of(nodes, 2) == expected
