"""``fullrank events``: from a click log to a collection that trains."""

from __future__ import annotations

import json
import time
from pathlib import Path
from secrets import token_hex

import pytest

from fullrank.events.compaction import compact
from fullrank.events.log import EVENTS, LISTS, Pseudonyms, erase, read_key
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter, list_segments, read_lines
from fullrank_trainer.collection import read_collection, read_queries
from tests.unit.cli.running import Run

DAY = 86_400
START = 1_795_392_000 - 20 * DAY


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """A table: forty queries, five days, two documents shown, the second clicked."""
    path = tmp_path / "clicks.csv"
    lines = ["query_id,user,query,document,shown,time"]
    lines += [
        f"l{i}-{day},u{(5 * i + day) % 40},ant {i},b,a|b,{START + day * DAY + i * 60}"
        for i in range(40)
        for day in range(5)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path, clicks: Path, run: Run) -> Path:
    folder = tmp_path / "bundles" / ".events"
    folder.parent.mkdir(exist_ok=True)
    got = run("events", "import", folder, clicks, "--json")
    assert json.loads(got.out) == {"log": str(folder), "lists": 200, "events": 200, "refused": {}}
    return folder


def age_imports(log: Path) -> None:
    """Make the imports of a log two days older."""
    for path in log.glob("*.sha256"):
        text = path.read_text()
        since = int(text.split("# imported ")[1])
        path.write_text(text.replace(str(since), str(since - 2 * DAY)))


def test_status_counts_what_could_be_learned(run: Run, log: Path) -> None:
    found = json.loads(run("events", "status", log.parent, "--json").out)
    assert found["log"] == str(log)
    assert (found["lists"], found["events"], found["votes"], found["people"]) == (200, 200, 200, 40)
    assert found["actions"] == {"click": 200}
    assert found["eta"] == 1
    table = run("events", "status", log).out
    assert "click 200" in table
    assert "2026-11-03" in table


def test_export_writes_a_collection(run: Run, log: Path, collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "clicked"
    for rule in ("mixture", "naive"):
        folder = out / rule
        folder.parent.mkdir(exist_ok=True)
        got = run("events", "export", log, collection, folder, "--weights", rule, "--json")
        found = read_collection(folder, strict=True)
        counts = json.loads(got.out)
        assert {split: len(found.qrels(split)) for split in found.splits} == {
            split: counts[split] for split in found.splits
        }
        assert counts["recent"] == 40
        assert counts["train"] > 20
        assert all(grades == {"a": -1, "b": 1} for grades in found.qrels("train").values())
    again = run("events", "export", log, collection, out / "naive")
    assert again.code == 1
    assert "exists already" in again.err.splitlines()[-1]


def test_export_leaves_other_models_out_if_asked(
    run: Run, log: Path, collection: Path, tmp_path: Path
) -> None:
    lists, events = SegmentWriter(log, LISTS), SegmentWriter(log, EVENTS)
    for i in range(40):
        texts = {"user_id": f"u{i}"}
        served = ServedList(f"o{i}", START + i, f"bee {i}", ["a", "b"], model="x-1-1", texts=texts)
        lists.append([served.line()])
        clicked = Event("click", START + i + 1, {"query_id": served.query_id, **texts}, "a")
        events.append([clicked.line()])
    lists.close()
    events.close()

    def words(*more: str) -> set[str]:
        out = tmp_path / "out" / "-".join(("c", *more))
        out.parent.mkdir(exist_ok=True)
        got = run("events", "export", log, collection, out, "--weights", "naive", *more)
        assert got.code == 0
        return {query.text.split()[0] for query in read_queries(out)}

    assert words() == words("--model", "x") == {"ant", "bee"}
    assert words("--model", "mine") == {"ant"}


def test_only_the_first_place_counts_if_asked(
    run: Run, log: Path, collection: Path, tmp_path: Path
) -> None:
    got = run("events", "export", log, collection, tmp_path / "x", "--position-1", "--recent", "0")
    assert got.code == 1
    assert "no clicks to learn from" in got.err


@pytest.fixture
def dwelt(tmp_path: Path, run: Run) -> Path:
    """A log of one query: two people click the first document, one for 3 s, one the third for a minute."""
    path = tmp_path / "ubi.jsonl"
    shown = {"ann": "abc", "bob": "abc", "kim": "cab"}
    clicks = [("ann", "a", 3000), ("bob", "c", 60_000), ("kim", "c", 3000)]
    lines: list[dict[str, object]] = [
        {
            "query_id": who,
            "user_query": "ant",
            "client_id": who,
            "timestamp": 1000 * (START + number),
            "query_response_hit_ids": [*ids],
        }
        for number, (who, ids) in enumerate(shown.items())
    ]
    lines += [
        {
            "action_name": "click",
            "query_id": who,
            "client_id": who,
            "timestamp": 1000 * (START + 60),
            "event_attributes": {"object": {"object_id": id}, "dwell_ms": dwell},
        }
        for who, id, dwell in clicks
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = tmp_path / "bundles" / ".events"
    folder.parent.mkdir(exist_ok=True)
    got = run("events", "import", folder, path, "--json")
    assert (json.loads(got.out)["lists"], json.loads(got.out)["events"]) == (3, 3), got.err
    return folder


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # One click on a, two on c.
        ([], {"a": 1, "c": 2}),
        # 3 s of 30 are a tenth of a click: 0.1 for a, 1.1 for c.
        (["--dwell"], {"a": 0.1, "c": 1.1}),
        # The first places: a with one click of two, c with one.
        (["--position-1"], {"a": 1, "c": 1}),
        (["--position-1", "--dwell"], {"a": 0.1, "c": 0.1}),
    ],
)
def test_export_counts_dwell_time_and_first_places_if_asked(
    run: Run,
    dwelt: Path,
    collection: Path,
    tmp_path: Path,
    options: list[str],
    expected: dict[str, float],
) -> None:
    out = tmp_path / "clicked"
    arguments = ["--weights", "naive", "--recent", "0", *options]
    got = run("events", "export", dwelt, collection, out, *arguments, "--json")
    assert got.code == 0, got.err
    weights = read_collection(out, strict=True).weights["train"]
    [found] = weights.values()
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_person_is_forgotten(run: Run, log: Path) -> None:
    assert json.loads(run("events", "forget", log, "u0", "--json").out)["forgotten"] == 1
    found = json.loads(run("events", "status", log, "--json").out)
    assert (found["people"], found["votes"]) == (39, 195)
    before = sum(len([*read_lines(path)]) for path in list_segments(log, EVENTS))
    done = json.loads(run("events", "compact", log, "--days", "9999", "--json").out)
    assert done["erased"] == 10
    after = sum(len([*read_lines(path)]) for path in list_segments(log, EVENTS))
    assert (before, after) == (200, 195)


def test_what_a_clock_that_is_ahead_reported_is_forgotten_too(run: Run, log: Path) -> None:
    writer = SegmentWriter(log, EVENTS)
    people = Pseudonyms(read_key(log.with_name(".events.key")))
    writer.append([Event("click", time.time() + 200, {"user_id": people.of("fay")}).line()])
    writer.close()
    assert json.loads(run("events", "status", log, "--json").out)["events"] == 201
    assert run("events", "forget", log, "fay").code == 0
    assert json.loads(run("events", "status", log, "--json").out)["events"] == 200


def test_forgetting_needs_the_key(run: Run, log: Path, tmp_path: Path) -> None:
    got = run("events", "forget", log, "u0", "--key", tmp_path / "other.key")
    assert got.code == 1
    assert (
        got.err
        == f"fullrank: {tmp_path / 'other.key'}: no such key; name the key of this log with --key\n"
    )
    assert not (tmp_path / "other.key").exists()


def test_compaction_removes_what_is_old(run: Run, log: Path) -> None:
    age_imports(log)
    done = json.loads(run("events", "compact", log, "--days", "1", "--json").out)
    assert done["expired"] == 10
    assert list_segments(log, EVENTS) == []


def test_what_was_imported_is_kept_as_if_it_were_new(run: Run, log: Path) -> None:
    now = time.time()
    assert compact(log, 1, 1 << 30, now).expired == 0
    assert len(list_segments(log, EVENTS)) == 5
    erase(log, [Pseudonyms(read_key(log.with_name(".events.key"))).of("u0")], now)
    compact(log, 1, 1 << 30, now + DAY - 60)  # rewrites and merges what it can
    assert json.loads(run("events", "status", log, "--json").out)["events"] == 195
    assert compact(log, 1, 1 << 30, now + DAY + 60).expired == 10


def test_an_import_that_the_service_would_shrink_is_refused(
    run: Run, log: Path, tmp_path: Path
) -> None:
    before = sorted(log.iterdir())
    large = tmp_path / "large.csv"
    rows = "".join(f"{token_hex(40)},{token_hex(40)},{START + i}\n" for i in range(10_000))
    large.write_text("query,document,time\n" + rows)
    got = run("events", "import", log, large, "--mb", "1")
    assert got.code == 1
    assert "raise FULLRANK_EVENTS_MB" in got.err
    assert sorted(log.iterdir()) == before


def test_compaction_keeps_what_the_settings_of_the_service_keep(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_imports(log)
    monkeypatch.setenv("FULLRANK_EVENTS_DAYS", "1")
    monkeypatch.setenv("FULLRANK_EVENTS_MB", "10")
    assert json.loads(run("events", "compact", log, "--days", "9999", "--json").out)["expired"] == 0
    assert json.loads(run("events", "compact", log, "--json").out)["expired"] == 10


def test_no_second_key_is_made(run: Run, log: Path, clicks: Path, tmp_path: Path) -> None:
    moved = log.rename(tmp_path / "elsewhere")
    got = run("events", "import", moved, clicks)
    assert (got.code, "no such key" in got.err) == (1, True)
    assert not (tmp_path / ".events.key").exists()
    assert run("events", "import", moved, clicks, "--key", log.with_name(".events.key")).code == 0
    assert json.loads(run("events", "status", moved, "--json").out)["people"] == 40


def test_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    for command in ("status", "compact"):
        got = run("events", command, tmp_path / "absent")
        assert (got.code, got.err) == (1, f"fullrank: {tmp_path / 'absent'}: no such folder\n")
    (tmp_path / "x.txt").write_text("hello", "utf-8")
    got = run("events", "import", tmp_path / "log", tmp_path / "x.txt")
    assert got.code == 1
    assert "neither UBI" in got.err
    assert not (tmp_path / "log").exists()
