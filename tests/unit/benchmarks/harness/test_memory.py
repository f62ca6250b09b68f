"""Each part of a run has the peak of what it held at once."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.processes import Peaks

MIB = 2**-10  # in GiB


def test_a_peak_belongs_to_the_part_that_reached_it() -> None:
    peaks = Peaks()
    peaks.end("small")
    np.ones(64 << 20, np.uint8)
    peaks.end("large")
    peaks.end("after")
    assert peaks.gib["large"] > peaks.gib["small"] + 50 * MIB
    assert peaks.gib["after"] < peaks.gib["large"] - 50 * MIB
    assert peaks.largest == peaks.gib["large"]
    before = peaks.gib["large"]
    peaks.end("large")
    assert peaks.gib["large"] == before
