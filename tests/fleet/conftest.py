"""A Ray cluster of two nodes on this machine, for all tests of a module."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from fullrank_fleet.cluster import joined, node_environment
from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start the nodes with one core each; tests join with ``cluster.address`` and may add or remove nodes."""
    os.environ.update(node_environment())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        found: Any = Cluster()
        for _ in range(2):
            found.add_node(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
    yield found
    found.shutdown()


@pytest.fixture(scope="module")
def ray(cluster: Any) -> Iterator[Any]:
    """The module ``ray``, joined to the cluster."""
    with joined(cluster.address) as found:
        yield found
