"""What is replayed is what the bundle answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import find_bundle, open_bundle
from tests.bundles import make_bundle
from trainer.promotion.replay import Clicks, replay, slowest


def test_reciprocal_ranks_are_those_of_a_search(tmp_path: Path) -> None:
    make_bundle(tmp_path, "shop", n_dense=2)
    bundle = open_bundle(find_bundle(tmp_path, "shop"))
    queries = ["copy files", "remote host", "list a directory"]
    documents = [*bundle.documents.ids, "absent"]
    pairs = [(q, d) for q in range(len(queries)) for d in range(len(documents))]
    query, document = np.array(pairs).T
    ones = np.ones(len(pairs))
    found = replay(bundle, Clicks(queries, documents, query, document, query, ones, 3))
    for (q, d), reciprocal in zip(pairs, found.reciprocal_rank, strict=True):
        ranked = [hit.id for hit in bundle.search(queries[q], len(documents))]
        place = ranked.index(documents[d]) + 1 if documents[d] in ranked else None
        assert reciprocal == (0 if place is None else 1 / place)
    assert found.empty == 0


class Slow:
    """Answers after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def search(self, *_: Any) -> None:
        time.sleep(self.seconds)


def test_the_slower_side_is_found() -> None:
    fast: Any = Slow(0.001)
    slow: Any = Slow(0.05)
    before, after = slowest(fast, slow, ["a", "b"])
    assert after > before
    assert after == pytest.approx(0.05, abs=1)
