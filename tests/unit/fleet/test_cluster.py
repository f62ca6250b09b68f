"""Join a cluster that does not exist: one line, at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fullrank.errors import FullrankError
from fullrank_fleet.cluster import joined
from tests.ports import free_port


def test_an_address_without_a_cluster_is_refused_at_once() -> None:
    address, began = f"127.0.0.1:{free_port()}", time.monotonic()
    with (
        pytest.raises(FullrankError, match=f"--ray {address}: no cluster answers there"),
        joined(address),
    ):
        pass
    assert time.monotonic() - began < 30


def test_a_malformed_address_is_one_error() -> None:
    with (
        pytest.raises(FullrankError, match="--ray nonsense: no cluster answers there"),
        joined("nonsense"),
    ):
        pass


def test_a_token_is_found_before_ray_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    code = "import fullrank_fleet.commands, os; print(os.environ.get('RAY_AUTH_MODE'))"
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(done.stdout.strip())
        (tmp_path / "token").write_text("x" * 64)
    assert found == ["None", "token"]
