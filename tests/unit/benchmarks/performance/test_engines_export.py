"""The benchmark of exports: files read back, and the figures of a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.performance.engine_files import nine_bits
from benchmarks.performance.engines_export import System, ask_all, exact, from_files, row
from fullrank import open_bundle
from tests.bundles import make_bundle

TEXTS = ["copy files", "remote host", "markup", "nothing known"] * 10


def test_files_that_are_read_back_give_the_scores_of_the_library(tmp_path: Path) -> None:
    bundle = open_bundle(tmp_path / "mine" / make_bundle(tmp_path, "mine", n_dense=3))
    library, *others = systems = [System("library", exact(bundle)), *from_files(bundle, tmp_path)]
    for text in TEXTS:
        ask_all(systems, text)
    assert [system.name for system in others] == [
        "OpenSearch, exact, from its file",
        "OpenSearch, fast, from its file",
        "Vespa, exact, from its file",
        "Vespa, fast, from its file",
    ]
    for system in others:
        figures = row(system, library.answers)
        assert figures["same"] == len(TEXTS)
        assert figures["recall"] == 1
        assert 0 < figures["difference"] < 1e-5
        assert figures["p50_ms"] is None
    assert others[0].megabytes is not None
    assert others[0].megabytes > 0


def test_figures_count_what_differs() -> None:
    truth = [[("a", 3.0), ("b", 2.0)], [("c", 1.0), ("d", 0.5)]] * 15
    mine = System("mine", lambda _: [])
    mine.answers = [[("a", 3.0), ("b", 2.25)], [("d", 1.0), ("e", 0.5)]] * 15
    mine.milliseconds = [99.0] * 20 + [1.0] * 9 + [2.0]
    figures = row(mine, truth)
    assert figures["same"] == 15
    assert figures["recall"] == 0.75
    assert figures["difference"] == 0.25
    assert figures["p50_ms"] == 1.0


def test_feature_fields_keep_nine_bits() -> None:
    weights = np.array([1, 1.5, 0.3, 11.779378], np.float32)
    kept = nine_bits(weights)
    assert kept[:2].tolist() == [1, 1.5]
    assert (kept <= weights).all()
    assert kept == pytest.approx(weights, rel=2**-8)
    assert not np.array_equal(kept[2:], weights[2:])
