"""What the log says to everybody: only what several people did."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fullrank.events import segments as archive
from fullrank.events.compaction import compact
from fullrank.events.days import Days
from fullrank.events.log import EVENTS, LISTS, EventLog, erase
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank.events.together import Together
from fullrank_service.completion.calibrations import fit
from fullrank_service.completion.usage import Digest, clicked_for, queries_for, read_digest
from tests.clicking import MONDAY, click, listing

DAY = 86_400.0


def log_of(
    folder: Path, lists: Sequence[ServedList], events: Sequence[Event] = (), at: float = MONDAY
) -> EventLog:
    """Write records into segments that were begun at a time."""
    for kind, records in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(folder, kind, clock=lambda: at)
        writer.append([record.line() for record in records])
        writer.close()
    return EventLog(folder)


def digest_of(log: EventLog) -> Digest:
    """Read a log as a worker that nothing is new enough for."""
    found = read_digest(log, time.time())
    assert found is not None
    return found


def shown(
    users: str, text: str = "Red  Shoes", ids: tuple[str, ...] = ("a",), **more: Any
) -> list[ServedList]:
    more = {"model": "shop-20260101t000000z-0123abcd", **more}
    return [listing(f"{text}{user}", ids, text, user=user, **more) for user in users]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (shown("uvw"), {"red shoes": 3}),
        (shown("uvw") + shown("uvx", "red shoes"), {"red shoes": 4}),
        (shown("uvuv"), {}),
        (shown("uvw", ids=()), {}),
        (shown("uvw", is_bot=True), {}),
        (shown("uvw", offset=10), {}),
        (shown("uvw", kind="similar"), {}),
        (shown("uvw", kind="reported", model=None), {"red shoes": 3}),
        (shown("uvw", model="shop-de-20260101t000000z-0123abcd"), {}),
    ],
)
def test_queries_of_three_people_that_had_hits(
    tmp_path: Path, lists: list[ServedList], expected: dict[str, int]
) -> None:
    assert dict(queries_for(digest_of(log_of(tmp_path, lists)), "shop")) == expected


def test_people_who_are_not_named_count_nothing(tmp_path: Path) -> None:
    lists = [listing(f"l{i}", ["a"], user=None) for i in range(9)]
    assert digest_of(log_of(tmp_path, lists)).queries == {}


@pytest.mark.parametrize(
    ("kind", "days", "expected"),
    [
        ("user_id", [0, 0, 0], 3),
        # Nine tabs, or nine private windows of a day, may be one person.
        ("session_id", [0, 1, 2], None),
        ("client_id", [0] * 9, None),
        ("client_id", [0, 1, 1, 1], None),
        ("client_id", [0, 1, 2, 2], 4),
    ],
)
def test_clients_of_one_day_publish_no_text(
    tmp_path: Path, kind: str, days: list[int], expected: int | None
) -> None:
    for number, day in enumerate(days):
        texts = {kind: f"{number}"}
        served = ServedList(f"{number}", MONDAY + day * DAY, "red shoes", ["a"], texts=texts)
        log_of(tmp_path, [served], at=MONDAY + day * DAY)
    # The first client comes back every day.
    for day in range(4):
        at = MONDAY + day * DAY + 60
        served = ServedList(f"again{day}", at, "red shoes", ["a"], texts={kind: "0"})
        log_of(tmp_path, [served], at=at)
    found = digest_of(EventLog(tmp_path)).queries
    assert found == ({} if expected is None else {"": {"red shoes": expected}})


def test_clicks_of_the_same_people_make_documents_belong_together(tmp_path: Path) -> None:
    lists = [listing(f"l{user}", ["a", "b"], user=user) for user in "uvw"]
    # The events name no person; their lists do.
    events = [click(f"l{user}", document, user=None) for user in "uvw" for document in "ab"]
    digest = digest_of(log_of(tmp_path / "1", lists, events))
    pairs = {"a": [Together("b", 3, 1.0)], "b": [Together("a", 3, 1.0)]}
    assert digest.together == {"": pairs}
    assert digest.clicked == {"": {"a": 3, "b": 3}}
    assert digest_of(log_of(tmp_path / "2", [], events)).together == {}
    robots = [click(f"l{user}", d, user=None, is_bot=True) for user in "uvw" for d in "ab"]
    assert digest_of(log_of(tmp_path / "3", lists, robots)).together == {}
    busy = [click("lu", f"d{i}", at=float(i), user="u") for i in range(200)]
    assert digest_of(log_of(tmp_path / "4", lists, events + busy)).clicked == {"": {"a": 2, "b": 2}}


def test_equal_ids_of_two_bundles_stay_apart(tmp_path: Path) -> None:
    lists, events = [], []
    for name, documents in (("shop", "ab"), ("news", "ac")):
        model = f"{name}-20260101t000000z-0123abcd"
        for user in "uvw":
            lists.append(listing(f"{name}{user}", [*documents], user=user, model=model))
            events += [click(f"{name}{user}", id, user=user) for id in documents]
    digest = digest_of(log_of(tmp_path, lists, events))
    partners = {
        name: [one.document for one in digest.together[name]["a"]] for name in ("shop", "news")
    }
    assert partners == {"shop": ["b"], "news": ["c"]}
    assert clicked_for(digest, "shop") == {"a": 3, "b": 3}


def test_only_new_segments_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(5):
        log_of(tmp_path, shown("uvw", f"day {day} "), at=MONDAY + day * DAY)
    read: list[str] = []
    plain = archive.read_lines

    def record(path: Path) -> Any:
        read.append(path.name.split("-")[1][:8])
        return plain(path)

    monkeypatch.setattr("fullrank.events.segments.read_lines", record)
    first = digest_of(EventLog(tmp_path))
    assert read == ["20261127", "20261126", "20261125", "20261124", "20261123"]
    read.clear()
    log_of(tmp_path, shown("xyz", "day 4 "), at=MONDAY + 4 * DAY + 60)
    second = digest_of(EventLog(tmp_path))
    assert read == ["20261127", "20261127"]
    counts = dict(queries_for(first, "shop")), dict(queries_for(second, "shop"))
    assert counts[0] == {f"day {day}": 3 for day in range(5)}
    assert counts[1] == {**counts[0], "day 4": 6}


def test_one_worker_reads_and_the_others_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    log = log_of(tmp_path, shown("uvw"))
    with Days(log).turn():
        assert read_digest(log, began) is None
    first = digest_of(log)
    monkeypatch.setattr("fullrank_service.completion.usage.Days.update", None)
    assert read_digest(log, began) == first
    assert first.since is None


def test_clocks_and_kills_leave_no_stale_digest(tmp_path: Path) -> None:
    log = log_of(tmp_path, shown("uvw"))
    digest_of(log)
    folder = Days(log).folder
    for path in folder.iterdir():
        # The clock is set back by an hour afterwards.
        os.utime(path, (time.time() + 3600,) * 2)
    (folder / f".{path.name}.0123456789abcdef.tmp").touch()
    log_of(tmp_path, shown("xyz"), at=MONDAY + 60)
    assert dict(queries_for(digest_of(log), "shop")) == {"red shoes": 6}
    assert len(list(folder.iterdir())) == 3
    assert {path.stat().st_mode & 0o077 for path in folder.glob("*-*")} == {0}
    assert folder.stat().st_mode & 0o077 == 0


def test_the_newest_day_that_lacks_something_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.events.days._MAX_LISTS", 1)
    for day in range(3):
        users = "uvw" if day != 1 else "u"
        log_of(tmp_path, shown(users, f"day {day} "), at=MONDAY + day * DAY)
    assert digest_of(EventLog(tmp_path)).since == MONDAY + 3 * DAY


def test_an_erased_person_leaves_the_digests_though_a_segment_is_damaged(tmp_path: Path) -> None:
    log = log_of(tmp_path, shown("uvw"))
    digest_of(log)
    [segment] = tmp_path.glob("lists-*.gz")
    segment.write_bytes(b"damaged")
    erase(tmp_path, ["u"], time.time())
    with pytest.raises(archive.SegmentError):
        compact(tmp_path, 90, 10**9, time.time())
    assert [path.name for path in Days(log).folder.iterdir()] == [".lock"]


def test_the_newest_days_come_first_and_the_others_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(3):
        log_of(tmp_path, shown("uvw", f"day {day} "), at=MONDAY + day * DAY)
    # Time for one day, if each look at the clock takes a second.
    ticks = iter(range(10**6))
    monkeypatch.setattr("fullrank_service.completion.usage.MAX_READ_S", 6.0)
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), time=time.time)
    monkeypatch.setattr("fullrank.events.days.time", clock)
    found = [digest_of(EventLog(tmp_path)) for _ in range(3)]
    texts = [[text for text, _ in queries_for(one, "shop")] for one in found]
    assert [sorted(one) for one in texts] == [
        ["day 2"],
        ["day 1", "day 2"],
        ["day 0", "day 1", "day 2"],
    ]
    assert [one.since for one in found] == [MONDAY + 2 * DAY, MONDAY + DAY, None]
    assert [one.has_more for one in found] == [True, True, False]


def page_of(number: int, score: float, **more: Any) -> ServedList:
    """A page that shows an ad beside a document without one."""
    given = {
        "kind": "match",
        "model": "shop-20260101t000000z-0123abcd",
        "model_id": "m1",
        "ads": ((1, "top", score),),
        **more,
    }
    return listing(f"p{number}", ["doc", "ad"], "page", float(number), **given)


def reports(number: int, *actions: str, **more: Any) -> list[Event]:
    return [click(f"p{number}", "ad", float(number), None, action, **more) for action in actions]


def ads_of(folder: Path, lists: Sequence[ServedList], events: Sequence[Event]) -> list[Any]:
    """Return what the digest of the only day says about ads."""
    log = log_of(folder, lists, events)
    digest_of(log)
    [(_, day)] = Days(log).read()
    assert day is not None
    return [tuple(row) for row in day.ads]


def test_ads_are_those_of_a_plain_count(tmp_path: Path) -> None:
    rng = random.Random(2)
    counts: dict[Any, list[int]] = {}
    lists, events = [], []
    for number in range(400):
        key = (rng.choice(["m1", "m2"]), rng.choice(["top", "side"]), rng.choice([1.5, -3.25, 0.0]))
        model_id, placement, score = key
        ads = ((1, placement, score),)
        lists.append(page_of(number, 0.0, user=None, model_id=model_id, ads=ads))
        is_seen, is_clicked = rng.random() < 0.8, rng.random() < 0.3
        # Any of them may be reported twice, and clicks alone count nothing.
        events += reports(number, *["impression"] * (2 * is_seen), *["click"] * (2 * is_clicked))
        if is_seen:
            own = counts.setdefault(("shop", *key), [0, 0])
            own[0] += 1
            own[1] += is_clicked
    found = ads_of(tmp_path, lists, events)
    assert sorted(found) == sorted((*key, *own) for key, own in counts.items())


@pytest.mark.parametrize(
    ("lists", "events", "expected"),
    [
        ([page_of(1, 2.0)], reports(1, "click", "impression"), [1, 1]),
        ([page_of(1, 2.0)], reports(1, "impression", "click", is_bot=True), None),
        ([page_of(1, 2.0, is_bot=True)], reports(1, "impression", "click"), None),
        ([page_of(1, 2.0, ads=())], reports(1, "impression", "click"), None),
        # One person clicks on everything.
        (
            [page_of(n, 2.0) for n in range(40)],
            [event for n in range(40) for event in reports(n, "impression", "click")],
            [25, 25],
        ),
    ],
)
def test_programs_and_busy_people_count_no_ads(
    tmp_path: Path, lists: list[ServedList], events: list[Event], expected: list[int] | None
) -> None:
    found = ads_of(tmp_path, lists, events)
    assert found == ([] if expected is None else [("shop", "m1", "top", 2.0, *expected)])


@pytest.mark.parametrize("score", [1.0, -1.0, 0.0, 3.14159, 1e-9, 123456.789, -0.3])
def test_scores_of_ads_are_rounded_a_little(tmp_path: Path, score: float) -> None:
    [row] = ads_of(tmp_path, [page_of(1, score)], reports(1, "impression"))
    assert row[3] == pytest.approx(score, rel=0.004, abs=0)


def test_workers_share_a_calibration_of_all_days(tmp_path: Path) -> None:
    rng = random.Random(5)
    groups: dict[tuple[str, float], list[int]] = {}
    for day, clicks in enumerate((0, 600, 900)):
        lists, events = [], []
        for number in range(clicks * 2):
            score = rng.choice([1.0, 2.0])
            lists.append(replace(page_of(number, score, user=None), at=MONDAY + day * DAY))
            is_clicked = rng.random() < score / 4
            events += reports(number, "impression", *["click"] * is_clicked)
            own = groups.setdefault(("top", score), [0, 0])
            own[0], own[1] = own[0] + 1, own[1] + is_clicked
        lists.append(page_of(10**6, 1.0, user=None, model_id="few"))
        events += reports(10**6, "impression", "click")
        log = log_of(tmp_path, lists, events, at=MONDAY + day * DAY)
    found, again = digest_of(log), read_digest(log, 0.0)
    assert again is not None
    assert found.ads == again.ads
    assert found.ads["shop"]["few"].calibration is None
    assert found.ads["shop"]["few"].clicks == 3
    keys = sorted(groups)
    shown, clicked = np.array([groups[key] for key in keys], np.float64).T
    expected = fit([place for place, _ in keys], np.array([s for _, s in keys]), shown, clicked)
    assert found.ads["shop"]["m1"].calibration == expected
    assert found.ads["shop"]["m1"].clicks == clicked.sum() >= 1000
