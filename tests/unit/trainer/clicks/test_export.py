"""A log becomes a collection that the reader accepts in strict mode; tables are imported."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, EventLog, Pseudonyms
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import list_segments
from fullrank_trainer.clicks.export import query_id, split_votes, write_collection
from fullrank_trainer.clicks.imports import Record, format_of, read_records, store
from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import Clicked, Propensities, fit_mixture
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import ById
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
            people = ById(found.query_ids, found.document_ids, found.judgements[split], "people")[
                query
            ]
            assert people == {d: (1 + number % 2) * (grade > 0) for d, grade in grades.items()}
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


NOW = MONDAY + 86_400
YEARS_AGO = 1_500_000_000


def read(
    path: Path, form: str | None = None, first_position: int = 1
) -> tuple[list[Record], Counter[str]]:
    refused: Counter[str] = Counter()
    records = read_records(path, form or format_of(path), NOW, refused, first_position)
    return list(records), refused


def seen(records: list[Record]) -> list[tuple[str, list[str], int]]:
    return [(r.text, list(r.ids), r.offset) for r in records if isinstance(r, ServedList)]


def clicks(records: list[Record]) -> list[tuple[str, str | None]]:
    return [(r.texts["query_id"], r.object_id) for r in records if isinstance(r, Event)]


def test_ubi_events_and_queries_are_read(tmp_path: Path) -> None:
    query = {
        "query_id": "l1", "timestamp": YEARS_AGO * 1000, "user_query": "red", "client_id": "ann",
        "query_response_hit_ids": ["a", "b"], "query_attributes": {"x": 1},
    }  # fmt: skip
    click = {
        "action_name": "click", "timestamp": "2017-07-14T02:40:05Z", "query_id": "l1",
        "event_attributes": {"object": {"object_id": "b", "name": "B"}, "position": {"ordinal": 9}},
    }  # fmt: skip
    lines = [query, {"_source": click}, {"action_name": "click"}, {**query, "user_query": 3}]
    path = tmp_path / "log.ndjson.gz"
    text = "\n".join([*map(json.dumps, lines), "", "{"])
    path.write_bytes(gzip.compress(text.encode()))
    records, refused = read(path)
    assert seen(records) == [("red", ["a", "b"], 0)]
    assert clicks(records) == [("l1", "b")]
    assert [record.at for record in records] == [YEARS_AGO, YEARS_AGO + 5]
    assert refused == {"timestamp: is missing": 1, "user_query: is not text": 1, "no JSON": 1}


@pytest.mark.parametrize("shape", ["lines", "array", "events", "unfolded", "marked"])
def test_algolia_events_are_read(tmp_path: Path, shape: str) -> None:
    events = [
        {"eventType": "click", "eventName": "x", "index": "shop", "userToken": "ann",
         "timestamp": YEARS_AGO * 1000, "queryID": "l1", "objectIDs": ["a", "b"], "positions": [1, 2]},
        {"eventType": "conversion", "eventSubtype": "purchase", "eventName": "x", "index": "shop",
         "userToken": "ann", "queryID": "l1", "objectIDs": ["a"]},
        {"eventType": "tap"},
    ]  # fmt: skip
    texts = {
        "lines": "\n".join(map(json.dumps, events)),
        "array": json.dumps(events, indent=1),
        "events": json.dumps({"events": events}),
        "unfolded": json.dumps({"events": events}, indent=2),
        "marked": "\ufeff" + "\n".join(map(json.dumps, events)),
    }
    path = tmp_path / "events.json"
    path.write_text(texts[shape], "utf-8")
    records, refused = read(path)
    assert clicks(records) == [("l1", "a"), ("l1", "b"), ("l1", "a")]
    assert [r.action for r in records if isinstance(r, Event)] == ["click", "click", "purchase"]
    assert [record.at for record in records] == [YEARS_AGO, YEARS_AGO, NOW]
    assert refused == {"eventType: is not click, view or conversion": 1}


def test_values_that_nothing_can_hold_are_refused_one_by_one(tmp_path: Path) -> None:
    good = '{"action_name": "click", "timestamp": 1500000000000, "query_id": "l1"}'
    texts = [
        "{",
        good,
        good.replace("1500000000000", "1" + 400 * "0"),
        good.replace("1500000000000", "-1e17"),
        good.replace("1500000000000", '"0001-01-01T00:00:00Z"'),
        good.replace("l1", "\\ud800"),
        "7",
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(texts), "utf-8")
    records, refused = read(path)
    assert [record.at for record in records] == [YEARS_AGO]
    assert refused == {
        "no JSON": 1,
        "timestamp: holds an integer of more than 64 bits: store it as text": 1,
        "timestamp: is before 1970": 2,
        "query_id: holds a lone surrogate": 1,
        "no object": 1,
    }
    path.write_text(f"[{','.join(texts[1:])}]", "utf-8")
    assert len(read(path)[0]) == 1


@pytest.mark.parametrize("time", ["0001-01-01", "0999-01-01", "1969-12-31T23:59:59Z", "-1"])
def test_a_row_from_before_1970_is_refused(tmp_path: Path, time: str) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(f"query,document,time\nred,a,{time}\nred,b,2017-07-14\n", "utf-8")
    records, refused = read(path)
    assert clicks(records) == [("clicks.csv:1", "b")]
    assert sum(refused.values()) == 1


def test_a_position_that_nobody_reaches_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    rows = [f"red,a,{position}" for position in (10**23, 10**15, 10_001, 10_000)]
    path.write_text("\n".join(["query,document,position", *rows]), "utf-8")
    records, refused = read(path)
    assert seen(records) == [("red", ["a"], 9_999)]
    assert sum(refused.values()) == 3


def test_a_table_of_clicks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "\ufeffuser,query,document,position,time,extra\n"
        'ann,"red, shoes",a,3,2017-07-14T02:40:00Z,x\n'
        "bob,boots,b,,1500000000000,x\n"
        "bob,boots,b,zero,1500000000,x\n"
        ",boots,b,0,1500000000,x\n"
        "kim,,b,1,1500000000,x\n"
        ",boots,c,1,9999999999,x\n",
        "utf-8",
    )
    records, refused = read(path)
    assert seen(records) == [("red, shoes", ["a"], 2), ("boots", ["b"], 0)]
    assert [document for _, document in clicks(records)] == ["a", "b"]
    assert {record.at for record in records} == {YEARS_AGO}
    assert {record.texts["user_id"] for record in records} == {"ann", "bob"}
    assert sum(refused.values()) == 4


def test_a_table_of_what_was_shown_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shown.tsv"
    path.write_text(
        "query_id\tquery\tdocument\tposition\tclicked\n"
        "l1\tred\ta\t0\t0\nl1\tred\tb\t1\t1\nl1\tred\tz\t5\ttrue\nl2\tred\tb\t0\tfalse\n",
        "utf-8",
    )
    records, refused = read(path, first_position=0)
    assert seen(records) == [("red", ["a", "b"], 0), ("red", ["z"], 5), ("red", ["b"], 0)]
    assert clicks(records) == [("l1", "b"), ("l1/1", "z")]
    assert not refused


def test_a_table_with_whole_lists_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shown.csv"
    path.write_text(
        "query_id,query,document,shown,user\nl1,red,b,a|b|c,ann\nl1,red,c,a|b|c,ann\nl2,red,x,a|b,bob\n",
        "utf-8",
    )
    records, refused = read(path)
    assert seen(records) == [("red", ["a", "b", "c"], 0), ("red", ["a", "b"], 0)]
    assert clicks(records) == [("l1", "b"), ("l1", "c")]
    assert refused == {"document is not in shown": 1}


@pytest.mark.parametrize(
    ("header", "rows", "only_clicked"),
    [
        ("query,document", ["red,a", "red,b"], [True, True]),
        ("query,document,position", ["red,a,3"], [True]),
        ("query,document,query_id", ["red,a,1", "red,b,1"], [True]),
        ("query,document,shown", ["red,a,a|b", "red,b,"], [False, True]),
        ("query,document,shown", ["red,a,a"], [False]),
        ("query,document,query_id,clicked", ["red,a,1,1", "red,b,1,0"], [False]),
    ],
)
def test_a_table_without_what_was_shown_has_clicks_alone(
    tmp_path: Path, header: str, rows: list[str], only_clicked: list[bool]
) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join([header, *rows]))
    records, _ = read(path)
    store(records, tmp_path / "log", Pseudonyms(b"key" * 11), NOW, 1e9)
    found = [served.only_clicked for served in EventLog(tmp_path / "log").lists()]
    assert found == only_clicked


def test_the_column_of_documents_may_have_a_usual_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("query,sku,position\nred,b,2\n", "utf-8")
    records, _ = read(tmp_path / "x.csv")
    assert [record.ids for record in records if isinstance(record, ServedList)] == [["b"]]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", "utf-8")
    with pytest.raises(FullrankError, match="neither UBI nor Algolia"):
        format_of(tmp_path / "notes.txt")
    with pytest.raises(FullrankError, match="No such file"):
        format_of(tmp_path / "absent.json")
    (tmp_path / "x.csv").write_text("query,url\nred,b\n", "utf-8")
    with pytest.raises(FullrankError, match="no column 'document'; there are: query, url"):
        read(tmp_path / "x.csv")


def test_imported_records_lie_in_segments_of_their_days_under_pseudonyms(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    rows = [f"u{i % 3},red,d{i % 2},{i % 2 + 1},{YEARS_AGO + i * 40_000}" for i in range(6)]
    path.write_text("user,query,document,position,time\n" + "\n".join(rows) + "\n", "utf-8")
    records, _ = read(path)
    folder, people = tmp_path / "log", Pseudonyms(b"k" * 32)
    for _ in range(2):
        assert store(records, folder, people, time.time(), 1e9) == {LISTS: 6, EVENTS: 6}
    days = {path.name.split("-")[1] for path in list_segments(folder, EVENTS)}
    assert days == {"20170714T000000Z", "20170715T000000Z", "20170716T000000Z"}
    log = EventLog(folder)
    assert {event.person for event in log.events()} == {people.of(f"u{i}") for i in range(3)}
    twice, once = join(log.lists(), log.events()), join(*split(records))
    assert sorted(twice.time.tolist()) == sorted(once.time.tolist())
    assert twice.clicked.sum() == once.clicked.sum() == 6


def split(records: list[Record]) -> tuple[list[ServedList], list[Event]]:
    lists = [record for record in records if isinstance(record, ServedList)]
    return lists, [record for record in records if isinstance(record, Event)]
