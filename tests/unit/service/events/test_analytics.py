"""Analytics of a small log, counted by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fullrank.events.log import erase
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank_service.events.recorder import Analytics

NOW = 1_795_435_200.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def write(folder: Path, records: Iterable[ServedList | Event], at: float = NOW - 60) -> None:
    for kind, record_type in (("lists", ServedList), ("events", Event)):
        writer = SegmentWriter(folder, kind, clock=lambda: at)
        writer.append([record.line() for record in records if isinstance(record, record_type)])
        writer.seal()


def shown(id: str, text: str, who: str, ids: str = "abc", **changes: object) -> ServedList:
    given = {"at": NOW - 30, "texts": {"client_id": who}, **changes}
    return ServedList(id, text=text, ids=list(ids), **given)  # type: ignore[arg-type]


def click(query_id: str, object_id: str, action: str = "click", **changes: object) -> Event:
    given = {"at": NOW - 20, **changes}
    return Event(action, texts={"query_id": query_id}, object_id=object_id, **given)  # type: ignore[arg-type]


def report(folder: Path, days: int = 7) -> dict[str, Any]:
    return Analytics(folder, Clock(), Clock()).report(days)


def test_an_empty_log(tmp_path: Path) -> None:
    found = report(tmp_path / "missing")
    assert (found["searches"], found["ctr"], found["clicked_place"]) == (0, None, None)
    assert found["complete"] is True


def test_searches_and_clicks_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            shown("1", "Copy  file", "u1"),
            shown("2", "copy file", "u2"),
            shown("3", "copy file", "u3"),
            shown("4", "nothing here", "u1", ids=""),
            # Not searches of people, or not first pages.
            shown("5", "copy file", "u4", is_bot=True),
            shown("6", "copy file", "u4", offset=10),
            shown("7", "copy file", "u4", kind="match"),
            shown("8", "copy file", "u4", at=NOW - 8 * 86_400),
            click("1", "c"),
            click("1", "b"),
            click("2", "a", "purchase"),
            click("3", "z"),  # was not shown
            click("3", "a", "impression"),
            click("3", "a", is_bot=True),
        ],
    )
    found = report(tmp_path)
    assert (found["searches"], found["clicked"], found["without_hits"]) == (4, 2, 1)
    assert found["ctr"] == 0.5
    assert found["clicked_place"] == (2 + 1) / 2
    assert found["top"] == [{"query": "copy file", "searches": 3, "people": 3, "clicked": 2}]


def test_a_query_that_was_typed_on_is_no_search(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            *(shown(f"{id}{who}", text, who, typing=True)
              for who in ("u1", "u2", "u3") for id, text in (("1", "co"), ("2", "copy"), ("3", "copy f"))),
            click("2u1", "a"),
            Event("impression", NOW - 20, {"query_id": "2u2"}),
            Event("impression", NOW - 20, {"query_id": "2u3"}),
            click("1u1", "a", "impression"),
        ],
    )  # fmt: skip
    found = report(tmp_path)
    assert (found["searches"], found["clicked"]) == (3, 1)
    assert [one["query"] for one in found["top"]] == ["copy"]


def test_texts_need_three_people(tmp_path: Path) -> None:
    lists = [shown(f"a{i}", "my name", "u1") for i in range(9)]
    lists += [shown(f"b{i}", "two ask", f"u{i % 2}") for i in range(9)]
    lists += [shown(f"c{i}", "three ask", f"u{i % 3}") for i in range(9)]
    lists += [shown(f"d{i}", "nothing", f"u{i}", ids="") for i in range(3)]
    write(tmp_path, lists)
    found = report(tmp_path)
    nothing = {"query": "nothing", "searches": 3, "people": 3, "clicked": 0}
    three = {"query": "three ask", "searches": 9, "people": 3, "clicked": 0}
    assert found["top"] == [three, nothing]
    assert found["top_without_hits"] == [nothing]
    assert found["top_without_clicks"] == [three]
    assert "name" not in str(found)


def test_a_reported_list_counts_only_if_it_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path, [shown("1", "copy", "u", kind="reported"), shown("1", "copy", "u")])
    write(tmp_path, [shown("2", "copy", "u", kind="reported"), click("2", "a")], NOW - 90)
    found = report(tmp_path)
    assert (found["searches"], found["clicked"]) == (2, 1)


def test_it_is_read_once_a_minute_unless_somebody_is_erased(tmp_path: Path) -> None:
    timer = Clock()
    analytics = Analytics(tmp_path, Clock(), timer)
    write(tmp_path, [shown("1", "copy", "u")])
    assert analytics.report(7)["searches"] == 1
    write(tmp_path, [shown("2", "copy", "v")])
    assert analytics.report(7)["searches"] == 1
    timer.now += 61
    assert analytics.report(7)["searches"] == 2
    erase(tmp_path, ["v"], NOW)
    assert analytics.report(7)["searches"] == 1


def test_every_worker_notices_an_erasure_at_the_next_read(tmp_path: Path) -> None:
    write(tmp_path, [shown(f"{i}", "copy", f"u{i}") for i in range(3)])
    workers = [Analytics(tmp_path, Clock(), Clock()) for _ in range(2)]
    top = [{"query": "copy", "searches": 3, "people": 3, "clicked": 0}]
    assert [worker.report(7)["top"] for worker in workers] == [top, top]
    assert all(worker.report(30)["top"] == top for worker in workers)
    erase(tmp_path, ["u1"], NOW)
    for worker in workers:
        for days in (30, 7):
            found = worker.report(days)
            assert (found["searches"], found["top"]) == (2, [])


def test_the_oldest_is_left_out_when_time_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(5):
        at = NOW - day * 86_400
        write(tmp_path, [shown(f"{day}", "copy", "u", at=at)], at)
    ticks = iter(range(10**6))
    with monkeypatch.context() as patch:
        # Time for about two days, if each look at the clock takes a second.
        patch.setattr("fullrank_service.events.recorder._MAX_READ_S", 8.0)
        clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), time=time.time)
        patch.setattr("fullrank.events.days.time", clock)
        found = report(tmp_path)
    assert 0 < found["searches"] < 5
    assert found["complete"] is False
    assert found["since"] == (NOW // 86_400 - found["searches"] + 1) * 86_400
    found = report(tmp_path)
    assert (found["searches"], found["complete"]) == (5, True)


@pytest.mark.parametrize(
    "bound",
    [
        "fullrank_service.events.recorder._MAX_QUERIES",
        "fullrank_service.events.recorder._MAX_PEOPLE",
        "fullrank.events.days._MAX_LISTS",
    ],
)
def test_the_oldest_is_left_out_when_memory_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(bound, 1)
    for day in range(2):
        lists = [shown(f"{day}{i}", f"{day} {i}", f"u{i}") for i in range(2)]
        write(tmp_path, lists, NOW - day * 86_400)
    found = report(tmp_path)
    assert (found["searches"], found["complete"]) == (2, False)
    assert found["since"] >= NOW // 86_400 * 86_400


def test_a_click_after_midnight_counts(tmp_path: Path) -> None:
    midnight = NOW // 86_400 * 86_400
    write(tmp_path, [shown("1", "copy", "u", at=midnight - 600)], midnight - 1200)
    write(tmp_path, [click("1", "b", at=midnight + 60)], midnight + 30)
    found = report(tmp_path)
    assert (found["searches"], found["clicked"], found["clicked_place"]) == (1, 1, 2)


def test_a_list_that_is_clicked_before_and_after_midnight_is_one(tmp_path: Path) -> None:
    midnight = NOW // 86_400 * 86_400
    lists = [shown("1", "copy", "u", at=midnight - 600), shown("2", "copy", "v", at=midnight - 600)]
    write(tmp_path, [*lists, click("1", "b", at=midnight - 60)], midnight - 1200)
    write(tmp_path, [click(id, "c", at=midnight + 60) for id in "12"], midnight + 30)
    found = report(tmp_path)
    assert (found["searches"], found["clicked"], found["clicked_place"]) == (2, 2, 2.5)


def test_a_clock_that_is_set_back_does_not_freeze_it(tmp_path: Path) -> None:
    clock, timer = Clock(), Clock()
    analytics = Analytics(tmp_path, clock, timer)
    write(tmp_path, [shown("1", "copy", "u")])
    assert analytics.report(7)["searches"] == 1
    write(tmp_path, [shown("2", "copy", "u")])
    clock.now, timer.now = NOW - 3600, timer.now + 61
    assert analytics.report(7)["searches"] == 2
