"""Rounds of a loop on a few documents: what is logged is trained on, and what is better serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.clicks.people import WORLDS, Logged
from benchmarks.clicks.rounds import Policy, Workbench, read_judgements, run_rounds
from fullrank.events.records import Event, ServedList
from fullrank.progress import Reporter
from fullrank_trainer.train import train

pytestmark = pytest.mark.usefixtures("few_made_up_words")


@pytest.fixture
def bench(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """Trains in this process, on what clicks can teach."""

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


@pytest.mark.sweep
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
    assert (rounds[1].right, rounds[1].right_weight) == (1, 1)
    assert rounds[0].found == (1, 1, 1)


def test_judgements_that_are_right_are_counted_and_weighed(
    bench: Workbench, tmp_path: Path
) -> None:
    text, other = bench.collection.queries[:2]
    (right,) = bench.collection.answers[0]
    wrong = (right + 1) % 100
    lists, events = [], []
    # Three people click the answer, one the other document; a query of its own has only a wrong click.
    for i, row in enumerate([right, right, right, wrong]):
        ids = [bench.collection.documents[d] for d in (right, wrong)]
        lists.append(ServedList(f"{i}", 1e9, text.upper(), ids, texts={"user_id": f"u{i}"}))
        events.append(
            Event("click", 1e9 + 1, {"query_id": f"{i}"}, bench.collection.documents[row])
        )
    (answer,) = bench.collection.answers[1]
    ids = [bench.collection.documents[(answer + 1) % 100]]
    lists.append(ServedList("9", 1e9, other, ids, texts={"user_id": "u9"}))
    events.append(Event("click", 1e9 + 1, {"query_id": "9"}, ids[0]))
    logged = Logged(lists, events)
    folder, _ = bench.export("some", logged, Policy(rule="naive"))
    assert bench.found(logged, read_judgements(folder)) == (1 / 450, 1 / 450, 1 / 450)
    # Weights are numbers of clicks: 3 right, 1 + 1 wrong.
    assert bench.right(read_judgements(folder)) == pytest.approx((1 / 3, 3 / 5))


def test_rankings_are_rows_of_the_collection(bench: Workbench) -> None:
    bundle = bench.train("bm25", recipe="bm25")
    found = bench.rankings(bundle)
    assert found.shape == (450, 50)
    for query, row in zip(bench.collection.queries[:20], found[:20], strict=True):
        group = query.split()[1]
        first = [bench.collection.documents[d] for d in row[:10]]
        assert all(f"group{int(id[1:]) % 10}" == group for id in first)
    assert np.unique(found[0]).size == 50
    assert np.array_equal(bench.rankings(bundle), found)  # those that it kept
