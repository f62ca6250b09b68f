"""What is replayed is what the bundle answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.events.records import Event, ServedList
from fullrank_trainer.clicks import Propensities, join
from fullrank_trainer.promotion.gates import Clicks, replay, slowest
from tests.bundles import make_bundle


def test_a_clicked_document_is_ranked_among_those_of_its_list_or_all(tmp_path: Path) -> None:
    make_bundle(tmp_path, "shop", n_dense=2)
    bundle = open_bundle(find_bundle(tmp_path, "shop"))
    queries, ids = ["copy files", "remote host", "list a directory"], list(bundle.documents.ids)
    documents = [*ids, "absent"]
    rng = np.random.default_rng(1)
    query = rng.integers(0, 3, 60)
    shown = [rng.permutation(len(documents))[:4].astype(np.int64) for _ in range(60)]
    is_listed = np.arange(60) % 4 > 0
    clicks = Clicks(queries, documents, query, shown, query, np.ones(60), is_listed, 3)
    found = replay(bundle, clicks)
    rows = zip(query, shown, is_listed, found.reciprocal_rank, strict=True)
    for q, listed, has_list, reciprocal in rows:
        ranked = [hit.id for hit in bundle.search(queries[q], len(ids))]
        named = [documents[place] for place in listed]
        if not has_list:
            named = [named[0], *(id for id in ids if id != named[0])]
        order = [id for id in ranked if id in named]
        assert reciprocal == (1 / (order.index(named[0]) + 1) if named[0] in order else 0)


def test_clicks_come_with_their_lists() -> None:
    lists = [
        ServedList("1", 5.0, "copy", ["a", "b", "c"], texts={"user_id": "u"}),
        ServedList("2", 6.0, "move", ["d", "a"], offset=2, texts={"user_id": "v"}),
    ]
    events = [
        Event("click", 7.0, {"query_id": id}, document)
        for id, document in (("1", "c"), ("1", "a"), ("2", "d"))
    ]
    found = Clicks.of(join(lists, events), Propensities.of_power(1.0))
    rows = zip(found.query.tolist(), found.shown, found.weight.tolist(), strict=True)
    named = {
        (found.queries[q], *(found.documents[d] for d in shown)): weight
        for q, shown, weight in rows
    }
    assert {(query, first): weight for (query, first, *_), weight in named.items()} == {
        ("copy", "a"): pytest.approx(1),
        ("copy", "c"): pytest.approx(3),
        ("move", "d"): pytest.approx(3),
    }
    assert {key[1]: set(key[1:]) for key in named} == {
        "a": {"a", "b", "c"},
        "c": {"a", "b", "c"},
        "d": {"d", "a"},
    }
    assert found.people == 2


def test_clicks_that_compare_nothing_are_left_out() -> None:
    """The only hit of a list says nothing; a click without its list is ranked among all documents, and counts once."""
    lists = [
        ServedList("1", 5.0, "copy", ["a"], texts={"user_id": "u"}),
        ServedList("2", 6.0, "copy", ["b", "a"], texts={"user_id": "v"}),
        ServedList("3", 7.0, "copy", ["c"], "reported", offset=8, only_clicked=True),
    ]
    events = [
        Event("click", 9.0, {"query_id": id}, document) for id, document in ("1a", "2b", "3c")
    ]
    found = Clicks.of(join(lists, events), Propensities.of_power(1.0))
    assert [found.documents[shown[0]] for shown in found.shown] == ["b", "c"]
    assert (found.is_listed.tolist(), found.weight.tolist()) == ([True, False], [1, 1])


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
    assert after > before >= 0.001
    assert after >= 0.05
