"""Rounds of a loop on a few documents: what is logged is trained on, and what is better serves."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clicks.rounds import Policy, Workbench, run_rounds
from benchmarks.clicks.sessions import People, serve
from benchmarks.clicks.spam import SHARE, spam
from benchmarks.clicks.worlds import WORLDS
from benchmarks.performance.loop import plot
from fullrank.progress import Reporter
from trainer.train import train


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """Queries share a word with ten documents, and have another that only clicks can explain."""
    draw = random.Random(1)
    source = tmp_path / "source"
    (source / "qrels").mkdir(parents=True)
    lines = [f'{{"_id": "d{i:03}", "title": "group{i % 10} thing{i}"}}\n' for i in range(100)]
    (source / "corpus.jsonl").write_text("".join(lines))
    queries = [
        (f"q{i}-{k}", f"alias{i} group{i % 10} w{k}", i) for i in range(100) for k in range(6)
    ]
    draw.shuffle(queries)
    lines = [f'{{"_id": "{id}", "text": "{text}"}}\n' for id, text, _ in queries]
    (source / "queries.jsonl").write_text("".join(lines))
    for split, part in (
        ("train", queries[:450]),
        ("valid", queries[450:470]),
        ("test", queries[470:]),
    ):
        rows = "".join(f"{id}\td{i:03}\t1\n" for id, _, i in part)
        (source / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)

    def fit(
        self: Workbench, name: str, folder: Path | None = None, recipe: str | None = None
    ) -> Path:
        return train(
            folder or source,
            tmp_path / "bundles",
            name,
            recipe=recipe or "word-translation",
            reporter=Reporter(quiet=True),
        ).path

    monkeypatch.setattr(Workbench, "train", fit)
    return Workbench(source, tmp_path / "work", "1s")


def test_the_loop_learns(bench: Workbench) -> None:
    ask = {"rounds": 2, "sessions": 4000, "users": 200, "seed": 1}
    rounds = run_rounds(bench, "clean", WORLDS["clean"](), Policy(), **ask)
    before = bench.mrr(bench.train("bm25", recipe="bm25"))
    assert rounds[0].serving == pytest.approx(before)
    assert rounds[-1].mrr > before + 0.2
    # The first candidate was promoted while the second round ran.
    assert rounds[1].serving == pytest.approx(rounds[0].mrr)
    assert rounds[1].clicks > rounds[0].clicks
    assert rounds[0].shown <= rounds[1].shown


def test_an_account_that_clicks_its_own_makes_three_in_ten_clicks(bench: Workbench) -> None:
    bm25 = bench.rankings(bench.train("bm25", recipe="bm25"))
    people = People.draw(0, 2000, 50, len(bm25), 1)
    honest = serve(
        bench.collection,
        people,
        range(2000),
        bm25,
        WORLDS["eta=1"](),
        explored=0,
        seed=1,
        model="m",
    )
    found = spam(bench.collection, 3, 1)(honest, bm25, people)
    added = found.events[len(honest.events) :]
    assert len(added) / len(found.events) == pytest.approx(SHARE, abs=0.01)
    assert {event.texts["user_id"] for event in added} == {f"account {i}" for i in range(3)}
    assert len({event.object_id for event in added}) <= 20
    lists = {served.query_id: served for served in found.lists}
    assert all(event.object_id in lists[event.texts["query_id"]].ids for event in added)


def test_rankings_are_rows_of_the_collection(bench: Workbench) -> None:
    found = bench.rankings(bench.train("bm25", recipe="bm25"))
    assert found.shape == (450, 50)
    for query, row in zip(bench.collection.queries[:20], found[:20], strict=True):
        group = query.split()[1]
        first = [bench.collection.documents[d] for d in row[:10]]
        assert all(f"group{int(id[1:]) % 10}" == group for id in first)
    assert np.unique(found[0]).size == 50


def test_the_plot_has_a_line_for_each_policy(tmp_path: Path) -> None:
    policy = {"mrr": [0.1, 0.2, 0.3, 0.4]}
    rounds = {"ends": {"bm25": 0.1, "labels": 0.5}, "worlds": {"eta=1": {"weighted": policy}}}
    text = plot(tmp_path / "loop.svg", rounds).read_text()
    assert "weighted" in text
    assert "true labels" in text
