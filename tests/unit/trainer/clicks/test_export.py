"""A log becomes a collection that the reader accepts in strict mode."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import FullrankError
from fullrank_trainer.clicks.export import query_id, split_votes, write_collection
from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import Clicked, Propensities, fit_mixture
from fullrank_trainer.collection import read_collection
from tests.clicking import MONDAY, click, gamma_by_hand, listing

ETA_1 = Propensities.of_power(1.0)
DAY = 86_400


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    lines = [json.dumps({"_id": f"d{i}", "title": f"thing {i}", "sku": "x"}) for i in range(5)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "schema.json").write_text('{"fields": {"sku": "stored"}}', "utf-8")
    return folder


def clicked(queries: int = 200, later: int = 0) -> Votes:
    """Each query is asked on ten days, by one or two people, and leads to one document, on the last two to a later."""
    lists, events = [], []
    for i in range(queries):
        for day in range(10):
            name, user, at = f"l{i}-{day}", f"u{i}-{day % (1 + i % 2)}", day * DAY + i
            lists.append(listing(name, [f"d{j}" for j in range(5)], f"query {i}", at, user))
            events.append(click(name, f"d{(i + later * (day > 7)) % 5}", at, user))
    return join(lists, events)


def test_an_export_is_a_collection(tmp_path: Path, corpus: Path) -> None:
    votes = clicked()
    counts = write_collection(votes, ETA_1, corpus, tmp_path / "clicks")
    found = read_collection(tmp_path / "clicks", strict=True)
    assert found.splits == ("train", "valid", "test", "recent")
    assert {split: len(found.qrels(split)) for split in found.splits} == counts
    assert found.queries is not None
    texts = {query.id: query.text for query in found.queries}
    for split in found.splits:
        assert found.weights[split].keys() == found.qrels(split).keys()
        for query, grades in found.qrels(split).items():
            number = int(texts[query].removeprefix("query "))
            # All five were shown; those above the clicked one were passed over.
            clicked_at = number % 5
            assert grades == {f"d{i}": (i == clicked_at) - (i < clicked_at) for i in range(5)}
            assert found.people[split][query] == {f"d{number % 5}": 1 + number % 2}
    assert [v.name for v in found.fields if v.is_read] == ["title"]


@pytest.mark.sweep
def test_one_query_in_ten_is_in_valid_and_one_in_test() -> None:
    votes = clicked(3000)
    splits = split_votes(votes)
    asked = {name: set(votes.query[rows].tolist()) for name, rows in splits.items()}
    for name in ("valid", "test"):
        assert 250 < len(asked[name]) < 350
        assert asked["train"].isdisjoint(asked[name])
    assert asked["valid"].isdisjoint(asked["test"])
    assert len(asked["recent"]) == 3000
    assert np.sum([*splits.values()], axis=0).tolist() == [1] * len(votes)


def test_the_newest_fifth_of_the_clicks_is_recent() -> None:
    votes = clicked()
    day = (votes.time - MONDAY) // DAY
    assert set(day[split_votes(votes)["recent"]]) == {8, 9}
    assert not split_votes(votes, 0)["recent"].any()


@pytest.mark.parametrize("years", [2, 0])
def test_old_clicks_and_clicks_without_times_are_recent_by_their_order(years: int) -> None:
    """An import of a hundred clicks, then twenty searches; or all of them at the time of the import."""
    at = [-years * 365 * DAY] * 100 + [years * i for i in range(20)]
    lists = [listing(f"l{i}", ["a", "b"], f"query {i}", at[i], f"u{i}") for i in range(120)]
    votes = join(lists, [click(f"l{i}", "b", at[i], f"u{i}") for i in range(120)])
    recent = votes.take(split_votes(votes)["recent"])
    asked = {votes.queries[q] for q in recent.query}
    assert asked == {f"query {i}" for i in range(96, 120)}
    assert len(recent) == 2 * 24


def test_recent_clicks_teach_nothing(tmp_path: Path, corpus: Path) -> None:
    """Neither which document answers nor how people click."""
    for later in (0, 2):
        write_collection(clicked(later=later), ETA_1, corpus, tmp_path / str(later))
    for split in ("train", "valid", "test", "recent"):
        once, twice = ((tmp_path / n / "weights" / f"{split}.tsv").read_bytes() for n in "02")
        assert (once == twice) is (split != "recent")


def test_the_corpus_is_linked(tmp_path: Path, corpus: Path) -> None:
    write_collection(clicked(), ETA_1, corpus, tmp_path / "clicks")
    assert (tmp_path / "clicks/corpus.jsonl").samefile(corpus / "corpus.jsonl")
    assert sorted(path.name for path in (tmp_path / "clicks").iterdir()) == [
        "corpus.jsonl",
        "people",
        "qrels",
        "queries.jsonl",
        "schema.json",
        "weights",
    ]


def test_nothing_is_written_without_clicks_or_over_a_folder(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "clicks"
    with pytest.raises(FullrankError, match="no clicks to learn from"):
        write_collection(join([listing("l1", "ab")], []), ETA_1, corpus, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop"]
    out.mkdir()
    with pytest.raises(FullrankError, match="exists already"):
        write_collection(clicked(), ETA_1, corpus, out)
    assert list(out.iterdir()) == []


def test_ids_of_queries_never_change() -> None:
    assert query_id("red shoes") == "qea9addb87ec054ac"


def values(path: Path) -> dict[tuple[str, str], float]:
    rows = (line.split("\t") for line in path.read_text().splitlines()[1:])
    return {(query, document): float(value) for query, document, value in rows}


def test_what_measures_counts_a_judgement_by_how_likely_it_was_noticed(
    tmp_path: Path, corpus: Path
) -> None:
    votes = clicked()
    write_collection(votes, ETA_1, corpus, tmp_path / "clicks")
    mixture = fit_mixture(Clicked.of(votes, votes.clicked.astype(np.float64)), ETA_1)
    for split, rows in split_votes(votes).items():
        part = votes.take(rows)
        gamma = gamma_by_hand(part, mixture)
        missed: dict[tuple[str, str], float] = {}
        for q, d, place in zip(part.query, part.document, part.place, strict=True):
            pair = votes.queries[q], votes.documents[d]
            missed[pair] = missed.get(pair, 1.0) * (1 - min(mixture.alpha, 1 - 1e-9) / (place + 1))
        was_clicked = {(votes.queries[q], votes.documents[d]) for q, d in clicks_in(part)}
        found = values(tmp_path / "clicks" / "weights" / f"{split}.tsv")
        assert found.keys() == {(query_id(query), d) for query, d in was_clicked}
        if split != "train":
            times = Counter((votes.queries[q], votes.documents[d]) for q, d in clicks_in(part))
            wanted = {
                (query_id(query), d): n * gamma[query, d] / max(0.1, 1 - missed[query, d])
                for (query, d), n in times.items()
            }
            assert found == pytest.approx(wanted, rel=1e-4)


def clicks_in(votes: Votes) -> list[tuple[int, int]]:
    return list(zip(votes.query[votes.clicked], votes.document[votes.clicked], strict=True))


def test_a_final_training_has_all_but_validation(tmp_path: Path, corpus: Path) -> None:
    votes = clicked()
    write_collection(votes, ETA_1, corpus, tmp_path / "first")
    write_collection(votes, ETA_1, corpus, tmp_path / "final", final=True)
    found = read_collection(tmp_path / "final", strict=True)
    assert found.splits == ("train", "valid")
    queries = {split: set(found.qrels(split)) for split in found.splits}
    assert queries["train"].isdisjoint(queries["valid"])
    assert len(queries["train"] | queries["valid"]) == 200
    first = read_collection(tmp_path / "first")
    assert set(first.qrels("test")) <= queries["train"]
    assert set(first.qrels("valid")) <= queries["valid"]


def test_only_later_votes_are_recent() -> None:
    votes = clicked()
    newest = split_votes(votes)["recent"]
    after = float(np.median(votes.time[newest]))
    assert (split_votes(votes, after=after)["recent"] == (votes.time > after)).all()
    assert (split_votes(votes, after=0.0)["recent"] == newest).all()
    late = split_votes(votes, after=float(votes.time.max()))
    assert not late["recent"].any()
    assert sum(rows.sum() for rows in late.values()) == len(votes)


def test_a_clicked_document_is_never_a_negative(tmp_path: Path, corpus: Path) -> None:
    """One of twenty people clicks what the others pass over, and two documents that nobody clicks are above."""
    lists, events = [], []
    for n in range(20):
        lists.append(listing(f"l{n}", ["d1", "d2", "d0"], "query", user=f"u{n}"))
        events.append(click(f"l{n}", "d0" if n else "d1", user=f"u{n}"))
    votes = join(lists, events)
    write_collection(votes, ETA_1, corpus, tmp_path / "c", recent_share=0)
    found = read_collection(tmp_path / "c")
    [split] = found.splits
    [grades] = found.qrels(split).values()
    assert grades == {"d0": 1, "d1": 0, "d2": -1}


def test_at_most_four_documents_of_a_query_are_passed_over(tmp_path: Path, corpus: Path) -> None:
    ids = [f"d{j}" for j in range(5)]
    with (corpus / "corpus.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "d{j}", "title": "more"}}\n' for j in range(5, 9))
    lists, events = [], []
    for day in range(10):
        order = [f"d{j}" for j in (5, 6, 7, 8)] if day < 6 else ids[1:]
        lists.append(listing(f"l{day}", [*order, "d0", "d3"], "query", day * DAY, f"u{day}"))
        events.append(click(f"l{day}", "d0", day * DAY, f"u{day}"))
    write_collection(join(lists, events), ETA_1, corpus, tmp_path / "c", recent_share=0)
    found = read_collection(tmp_path / "c")
    [split] = found.splits
    [grades] = found.qrels(split).values()
    # Those that were passed over most often; what stood below the click was not.
    assert {d for d, grade in grades.items() if grade < 0} == {"d5", "d6", "d7", "d8"}
    assert grades["d0"] == 1
    assert {grades[d] for d in ids[1:]} == {0}
