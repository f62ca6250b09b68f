"""Gates let a better candidate pass and stop a worse one; what was logged is replayed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, find_bundle, open_bundle
from fullrank.events.records import Event, ServedList
from fullrank.retrieval import Floor
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Float64
from fullrank_trainer.clicks import Propensities, join
from fullrank_trainer.collection import read_collection
from fullrank_trainer.promotion import gates
from fullrank_trainer.promotion.gates import (
    Clicks,
    clicks_gate,
    common_gates,
    passed,
    replay,
    slowest,
    weighted_mrr,
)
from tests.bundles import make_bundle


def clicks(people: int, each: int = 5) -> Clicks:
    count = people * each
    return Clicks(
        ["q"],
        ["d"],
        np.zeros(count, np.int64),
        [np.zeros(1, np.int64)] * count,
        np.repeat(np.arange(people), each),
        np.random.default_rng(1).choice([1.0, 2.0, 10.0], count),
        np.ones(count, np.bool_),
        people,
    )


def ranks(count: int, mean: float, seed: int = 2) -> Float64:
    return np.where(np.random.default_rng(seed).random(count) < mean, 1.0, 0.0)


def test_the_measure_is_the_weighted_mean() -> None:
    found = clicks(20)
    rank = ranks(100, 0.5)
    wanted = sum(w * r for w, r in zip(found.weight, rank, strict=True)) / sum(found.weight)
    assert weighted_mrr(rank, found) == pytest.approx(wanted)


@pytest.mark.parametrize(("change", "passes"), [(0.1, True), (0.0, True), (-0.2, False)])
def test_a_worse_candidate_is_stopped(change: float, passes: bool) -> None:
    before = ranks(1000, 0.5)
    after = before.copy()
    moved = np.random.default_rng(3).random(1000) < abs(change)
    after[moved] = float(change > 0)
    gate = clicks_gate(before, after, clicks(200), 1)
    assert gate.passed is passes
    assert (gate.value >= gate.limit) is passes


def test_the_bound_counts_people_not_clicks() -> None:
    # The clicks of one person are one observation.
    before = np.repeat(ranks(40, 0.5), 50)
    after = np.repeat(ranks(40, 0.5, seed=9), 50)
    gate = clicks_gate(before, after, clicks(40, each=50), 1)
    assert gate.value < -0.15


def test_few_people_prove_nothing() -> None:
    gate = clicks_gate(np.ones(9), np.ones(9), clicks(9, 1), 1)
    assert not gate.passed
    assert "9 people" in gate.reason
    assert "20 must have clicked" in gate.reason


def test_the_gate_says_which_clicks_it_ranks_among_all_documents() -> None:
    some = replace(clicks(20), is_listed=np.arange(100) >= 30)
    gate = clicks_gate(np.ones(100), np.ones(100), some, 1)
    assert "; 30 clicks do not say what else was shown" in gate.reason


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "passes"),
    [(20, 24, True), (20, 26, False), (1, 4.9, True), (1, 5.1, False), (4.5, 5.5, True)],
)
def test_a_candidate_may_be_a_little_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_ms: float, after_ms: float, passes: bool
) -> None:
    monkeypatch.setattr(gates, "slowest", lambda *_: (before_ms / 1000, after_ms / 1000))
    one = bundle_with(tmp_path, None)
    found = common_gates(one, one, ["q"], None)
    assert {gate.name: gate.passed for gate in found} == {"empty": True, "speed": passes}


SOME, NONE = Floor(lexical=0.1), Floor(lexical=1e9)


@pytest.mark.parametrize(
    ("before", "after", "lost", "empty", "passes"),
    [
        (SOME, SOME, 1, 0.5, True),
        (SOME, NONE, 1, 1.0, True),
        (SOME, NONE, 2, 1.0, False),
        (None, SOME, 2, 0.0, True),
        (NONE, SOME, 2, 0.5, True),
    ],
)
def test_one_more_query_may_find_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Floor | None,
    after: Floor,
    lost: int,
    empty: float,
    passes: bool,
) -> None:
    """A version without a floor finds everything, so the floor of the next one does not count as a loss."""
    monkeypatch.setattr(gates, "slowest", lambda *_: (0.001, 0.001))
    found = common_gates(
        bundle_with(tmp_path / "before", before),
        bundle_with(tmp_path / "after", after),
        ["copy files", "remote host"][:lost] + ["zzqq", "qqzz"][:lost],
        None,
    )
    assert {gate.name: gate.passed for gate in found}["empty"] is passes
    assert found[0].value == empty


def test_one_more_of_six_may_find_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4/6 + 1/6 < 5/6, as floats are."""
    shares = iter([4 / 6, 5 / 6])
    monkeypatch.setattr(gates, "slowest", lambda *_: (0.001, 0.001))
    monkeypatch.setattr(gates, "empty_share", lambda *_, **__: next(shares))
    bundle = bundle_with(tmp_path, SOME)
    [gate, _] = common_gates(bundle, bundle, ["copy", *"abcde"], None)
    assert gate.passed


@pytest.mark.parametrize(
    ("losers", "change", "error", "passes"),
    [
        (0, 0.0, 0.0, True),
        # Of 16 queries one falls from rank 1 to 2: −.5/16, with the error √(.25·15/16 /15)/√16 = .5/16.
        (1, -0.5 / 16, 0.5 / 16, True),
        # Two: −1/16, with the error √(2·.25·(1 − 2/16)/15)/4.
        (2, -1 / 16, (0.5 * (1 - 2 / 16) / 15) ** 0.5 / 4, False),
    ],
)
def test_judgements_may_be_missed_by_one_standard_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losers: int,
    change: float,
    error: float,
    passes: bool,
) -> None:
    """The candidate puts another document above the judged one, for some of the queries."""
    monkeypatch.setattr(gates, "slowest", lambda *_: (0.001, 0.001))
    words = [f"word{chr(97 + i) * 3}" for i in range(16)]
    active = [Document(f"d{i:02}", {"title": word, "text": "x"}) for i, word in enumerate(words)]
    # A document without a word of these queries becomes one that has the word twice.
    more = [Document(f"e{i:02}", {"title": "other", "text": "y"}) for i in range(16)]
    stronger = [
        Document(one.id, {"title": f"{word} {word}", "text": ""}) if i < losers else one
        for i, (one, word) in enumerate(zip(more, words, strict=True))
    ]
    bundles = []
    for folder, documents in (("before", active + more), ("after", active + stronger)):
        make_bundle(tmp_path / folder, "m", documents)
        bundles.append(open_bundle(find_bundle(tmp_path / folder, "m")))
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    header = "query-id\tcorpus-id\tscore\n"
    for split, rows in (("train", ["t\td00\t1"]), ("valid", _rows(16))):
        (judged / "qrels" / f"{split}.tsv").write_text(header + "\n".join(rows) + "\n")
    for file, lines in (
        ("corpus", [{"_id": one.id, **one.fields} for one in active + more]),
        (
            "queries",
            [{"_id": f"q{i:02}", "text": word} for i, word in enumerate(words)]
            + [{"_id": "t", "text": "trained"}],
        ),
    ):
        (judged / f"{file}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = common_gates(bundles[0], bundles[1], words, read_collection(judged))
    [gate] = [gate for gate in found if gate.name == "valid"]
    assert gate.value == pytest.approx(change)
    assert -gate.limit == pytest.approx(error)
    assert gate.passed is passes
    assert passed(found) is passes


def test_clicks_of_a_collection_are_no_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate has learned those of valid, too."""
    monkeypatch.setattr(gates, "slowest", lambda *_: (0.001, 0.001))
    one = bundle_with(tmp_path / "one", None)
    ids = list(one.documents.ids)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "weights").mkdir()
    lines = [json.dumps({"_id": id, "t": "x"}) + "\n" for id in ids]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "copy files"}\n')
    for split in ("train", "valid"):
        for name, column in (("qrels", "score"), ("weights", "weight")):
            text = f"query-id\tcorpus-id\t{column}\nq\t{ids[0]}\t1\n"
            (tmp_path / name / f"{split}.tsv").write_text(text)
    found = common_gates(one, one, ["copy files"], read_collection(tmp_path))
    assert "valid" not in [gate.name for gate in found]


def _rows(count: int) -> list[str]:
    return [f"q{i:02}\td{i:02}\t1" for i in range(count)]


def bundle_with(folder: Path, floor: Floor | None) -> Bundle:
    make_bundle(folder, "m", floor=floor)
    return open_bundle(find_bundle(folder, "m"))


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
    rows = zip(query, shown, is_listed, found, strict=True)
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
