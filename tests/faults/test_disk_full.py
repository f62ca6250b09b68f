"""The disk full while documents are written and bundles are published: clean errors, reads go on, and it recovers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ALONE = ["unshare", "--mount", "--map-root-user"]


def filled(folder: Path, rounds: int) -> dict[str, int]:
    command = [*ALONE, sys.executable, "-m", "tests.faults.disk_full", str(folder), str(rounds)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60 + 30 * rounds
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert counts["rounds"] == counts["publish refused"] == counts["compact refused"] == rounds
    assert counts["writes refused"] == rounds
    # A few bytes may be left for the state of a swap, but not every time.
    assert counts.get("swaps refused", 0) > 0
    assert counts["acknowledged"] > 0
    assert counts["lost"] == 0
    return dict(counts)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_full_disk_is_a_clean_error_and_the_service_recovers(
    tmp_path: Path, a_namespace: None, times: int
) -> None:
    print(filled(tmp_path / "disk", times))  # noqa: T201


@pytest.fixture
def a_namespace() -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*ALONE, "true"], capture_output=True).returncode
    ):
        pytest.skip("no mount namespaces here")
