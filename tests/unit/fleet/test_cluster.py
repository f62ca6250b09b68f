"""Join a cluster that does not exist: one line, at once."""

from __future__ import annotations

import time

import pytest

from fleet.cluster import joined
from fullrank.errors import FullrankError
from tests.ports import free_port


def test_an_address_without_a_cluster_is_refused_at_once() -> None:
    address, began = f"127.0.0.1:{free_port()}", time.monotonic()
    with (
        pytest.raises(FullrankError, match=f"--ray {address}: no cluster answers there"),
        joined(address),
    ):
        pass
    assert time.monotonic() - began < 30
