"""Simulated people click as their world says, on the lists that were served, in sessions and loops."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.clicks import loop
from benchmarks.clicks.people import (
    PLACES,
    WORLDS,
    Collection,
    Logged,
    People,
    World,
    mixed,
    reciprocal_ranks,
    run_experiment,
    serve,
)
from benchmarks.clicks.rounds import Policy, Round
from benchmarks.clicks.shop import Shop, failed, later, peers, read_shop, write_collection
from fullrank.events.decisions import Verdict
from fullrank.events.votes import votes_of
from fullrank.storage.encoding import Int64
from fullrank_trainer.collection import read_collection

QUERIES, DOCUMENTS, SESSIONS = 40, 120, 6000


@pytest.fixture(scope="module")
def collection() -> Collection:
    rng = np.random.default_rng(1)
    return Collection(
        [f"query {i}" for i in range(QUERIES)],
        [f"d{i}" for i in range(DOCUMENTS)],
        [frozenset([int(rng.integers(DOCUMENTS))]) for _ in range(QUERIES)],
    )


def ranked(collection: Collection, place: int) -> Int64:
    """Fifty documents for each query, the answer at one place."""
    found = np.empty((QUERIES, 50), np.int64)
    for query, wanted in enumerate(collection.answers):
        rest = [d for d in range(DOCUMENTS) if d not in wanted]
        found[query] = [*rest[:place], *wanted, *rest[place:49]]
    return found


def logged(collection: Collection, world: str, place: int, explored: float = 0.0) -> Logged:
    people = People.draw(2, SESSIONS, 100, QUERIES, 1)
    return serve(
        collection,
        people,
        range(SESSIONS),
        ranked(collection, place),
        WORLDS[world](),
        explored=explored,
        seed=1,
        model="m",
    )


@pytest.mark.parametrize(
    ("world", "place"), [("eta=1", 0), ("eta=1", 4), ("eta=2", 1), ("ultra", 2)]
)
def test_an_answer_is_clicked_as_often_as_its_place_is_seen(
    collection: Collection, world: str, place: int
) -> None:
    found = logged(collection, world, place)
    lists = {served.query_id: served for served in found.lists}
    clicked = [(lists[event.texts["query_id"]].ids, event.object_id) for event in found.events]
    hit = sum(ids[place] == object_id for ids, object_id in clicked)
    examined = WORLDS[world]().examined[place]
    assert hit / SESSIONS == pytest.approx(0.8 * examined, abs=0.02)
    others = (len(found.events) - hit) / SESSIONS
    assert others == pytest.approx(0.05 * (WORLDS[world]().examined.sum() - examined), abs=0.02)


def test_a_cascade_ends_at_its_first_click(collection: Collection) -> None:
    found = logged(collection, "cascade", 3)
    ids = [event.texts["query_id"] for event in found.events]
    assert len(ids) == len(set(ids)) > SESSIONS / 2


def test_clean_clicks_are_the_answers_that_were_shown(collection: Collection) -> None:
    found = logged(collection, "clean", 9)
    assert len(found.events) == SESSIONS
    assert logged(collection, "clean", 10).events == []


def test_exploration_is_logged_as_it_was_shown(collection: Collection) -> None:
    found = logged(collection, "eta=1", 0, explored=0.2)
    inserted = [served for served in found.lists if served.inserted is not None]
    assert len(inserted) / SESSIONS == pytest.approx(0.2, abs=0.02)
    ranking = ranked(collection, 0)
    place_of = {text: i for i, text in enumerate(collection.queries)}
    for served in inserted:
        place = collection.documents.index(served.ids[served.inserted])  # type: ignore[index]
        assert place in ranking[place_of[served.text], PLACES:]
    pairs = [served for served in found.lists if served.pair is not None]
    assert len(pairs) / SESSIONS == pytest.approx(0.2, abs=0.02)


def test_mixed_rankings_differ_by_what_was_asked_for(collection: Collection) -> None:
    better, worse = ranked(collection, 0), ranked(collection, 3)
    ranks = reciprocal_ranks(collection.answers, better)
    assert ranks.tolist() == [1.0] * QUERIES
    gaps = ranks - reciprocal_ranks(collection.answers, worse)
    rng = np.random.default_rng(1)
    for wanted in (-0.3, 0.0, 0.3):
        found = []
        for _ in range(200):
            active, candidate = mixed(better, worse, wanted, gaps, rng)
            assert (active != candidate).any()
            mrr = [
                reciprocal_ranks(collection.answers, side).mean() for side in (active, candidate)
            ]
            found.append(mrr[1] - mrr[0])
        assert np.mean(found) == pytest.approx(wanted, abs=0.03)
    with pytest.raises(ValueError, match="differ by"):
        mixed(better, worse, 0.9, gaps, rng)


def test_an_experiment_finds_the_better_ranking(collection: Collection) -> None:
    better, worse = ranked(collection, 0), ranked(collection, 5)
    ask = {"sessions": 5000, "users": 100, "seed": 1}
    world = WORLDS["eta=1"]()
    assert run_experiment(collection, worse, better, world, **ask).verdict is Verdict.PROMOTE
    assert run_experiment(collection, better, worse, world, **ask).verdict is Verdict.STOP
    same = run_experiment(collection, better, better, world, **ask)
    assert same == (Verdict.OPEN, 0)


def test_interleaved_lists_vote(collection: Collection) -> None:
    people = People.draw(0, 500, 50, QUERIES, 1)
    found = serve(
        collection,
        people,
        range(500),
        ranked(collection, 5),
        WORLDS["clean"](),
        explored=0,
        seed=1,
        model="m",
        candidate=("n", ranked(collection, 0), 0.5),
    )
    assert sum(bool(served.teams) for served in found.lists) / 500 == pytest.approx(0.5, abs=0.07)
    votes = votes_of(found.lists, found.events, "m", "n", 0)
    # The active ranking shows the answer below what the candidate shows first.
    assert sum(vote.wins for vote in votes) > 0.8 * len(votes) > 100


BM25, LABELS = 0.4, 0.6
# After the last round, of the first seed; each further seed has .01 more.
MRR = {"weighted": 0.5, "naive": 0.42}


class Bench:
    """Has trained everything."""

    def __init__(self, source: Path, work: Path, *_: object) -> None:
        self.source, self._work = source, work
        documents = [str(number) for number in range(40)]
        self.collection = SimpleNamespace(documents=documents, answers=[{0}, {10}])

    def train(self, name: str, folder: Path | None = None, recipe: str | None = None) -> Path:
        bundle = self._work / name / f"{name}-1"
        bundle.mkdir(parents=True, exist_ok=True)
        return bundle

    def mrr(self, bundle: Path) -> float:
        return BM25 if bundle.parent.name == "bm25" else LABELS

    def rankings(self, bundle: Path) -> Int64:
        # The true labels have documents 0 to 19 on their first pages, and each answer on the first place.
        found = np.array([range(10), range(10, 20)])
        return found if bundle.parent.name == "labels" else found[:, ::-1]


def given_rounds(
    _: Bench, label: str, world: World, policy: Policy, *, seed: int, **__: object
) -> list[Round]:
    last = MRR["weighted" if policy.rule == "mixture" else policy.rule] + 0.01 * (seed - 1)
    serving = [BM25, 0.45, 0.45, last]
    shown = frozenset(str(number) for number in range(19))
    return [
        Round(mrr, serves, 1.1, (0.9, 1.3), shown, 1000, 0.9, 0.95, (0.7, 0.6, 0.5))
        for mrr, serves in zip((0.41, 0.43, 0.45, last), serving, strict=True)
    ]


def given_experiment(
    _: object, active: Int64, candidate: Int64, __: World, *, seed: int, **___: object
) -> SimpleNamespace:
    return SimpleNamespace(
        verdict=Verdict.PROMOTE if seed % 2 == 0 else Verdict.STOP, votes=100 + seed % 2
    )


@pytest.fixture
def printed(
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Any:
    """Runs the benchmark with some arguments; returns what it printed."""
    (tmp_path / "tldr").mkdir()
    (tmp_path / "tldr" / "en").symlink_to(source)
    monkeypatch.setattr(loop, "Workbench", Bench)
    monkeypatch.setattr(loop, "run_rounds", given_rounds)
    monkeypatch.setattr(loop, "run_experiment", given_experiment)
    monkeypatch.setattr(loop, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(loop, "machine", lambda _: {})

    def run(*arguments: str) -> dict[str, Any]:
        loop.main(["--json", "--work", str(tmp_path), *arguments])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_the_figures_are_those_of_the_runs(printed: Any) -> None:
    asked = ("--worlds", "eta=1", "--policies", "weighted,naive", "--seeds", "1,2,3")
    found = printed(*asked)
    assert found["gap_closed"] == pytest.approx((0.51 - BM25) / (LABELS - BM25))
    assert found["naive_gap_closed"] == pytest.approx((0.43 - BM25) / (LABELS - BM25))
    assert found["clean_gap_closed"] == pytest.approx(found["gap_closed"])
    assert found["eta_interval"] == pytest.approx([0.9, 1.3])
    assert found["coverage"] == pytest.approx(19 / 20)
    assert found["worlds"]["eta=1"]["naive"]["mrr"] == pytest.approx([0.41, 0.43, 0.45, 0.43])
    # Every second seed promotes.
    assert [found[f"promoted_{name}"] for name in ("equal", "worse", "better")] == [0.5] * 3
    assert [found[f"runs_{name}"] for name in ("equal", "worse", "better")] == [400, 200, 200]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "products.csv").write_text("sku,name\n1,red kettle\n2,blue kettle\n3,oak table\n")
    clicks = [("Kettle", "2")] * 6 + [("table", "3")] * 2 + [("kettle ", "2"), ("blue", "2")]
    lines = [
        "query,sku,user,time",
        *(f"{q},{d},u,2024-01-{i:02}" for i, (q, d) in enumerate(clicks)),
    ]
    with gzip.open(tmp_path / "clicks.csv.gz", "wt") as file:
        file.write("\n".join(reversed(lines[1:])).join([lines[0] + "\n", "\n"]))
    return read_shop(tmp_path, "test")


def test_the_last_clicks_are_predicted(shop: Shop) -> None:
    assert [click.query for click in shop.learned] == ["kettle"] * 6 + ["table"] * 2
    assert [click.query for click in shop.predicted] == ["kettle", "blue"]


def test_a_click_counts_one_over_its_rank(shop: Shop) -> None:
    found = shop.figures(lambda query: ["1", "2"] if query == "kettle" else ["2"])
    assert found == {"all": 0.75, "new": 1.0}


def test_an_order_that_knows_the_later_clicks_misses_none(shop: Shop) -> None:
    assert shop.figures(later(shop)) == {"all": 1.0, "new": 1.0}


def test_failed_clicks_say_what_was_clicked_before(shop: Shop) -> None:
    table = failed(shop, lambda query: ["3"] if query == "kettle" else ["2"], 5)
    assert "1 of 1 clicks" in table.title
    assert list(table.rows) == [["kettle", "6", "blue kettle", "6", "oak table", "0"]]


def test_peers_with_more_counts_rank_what_was_clicked_first(shop: Shop, tmp_path: Path) -> None:
    products = write_collection(shop, tmp_path / "products", clicks=False)
    ranked = {name: search("kettle") for name, search in peers(shop, products).items()}
    assert ranked["bm25s"][:2] == ["1", "2"]
    assert ranked["bm25s + popularity"][0] == "2"
    assert ranked["bm25s + popularity + clicks"][0] == "2"


def test_the_collection_says_how_often(shop: Shop, tmp_path: Path) -> None:
    found = read_collection(write_collection(shop, tmp_path / "clicks", clicks=True))
    queries = {query.text: query.id for query in found.queries or []}
    assert found.weights["train"][queries["kettle"]] == {"2": 6.0}
