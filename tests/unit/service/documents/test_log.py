"""The log, in SQLite and in PostgreSQL: one order, no write twice, none half."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from fullrank_service.documents import log as documents_log
from fullrank_service.documents.log import (
    Caps,
    Changed,
    Kept,
    KeyReused,
    Log,
    LogError,
    Outcome,
    Submission,
    TooManyLive,
    Write,
)
from fullrank_service.documents.sqlitelog import LogPlace
from tests.databases import NewDatabase

CAPS = Caps()


def rendered(first: int) -> bytes:
    return f"from {first}".encode()


def put(*ids: str, name: str = "docs", text: str = "x", **more: object) -> Submission:
    writes = [Write(id, json.dumps({"text": text}).encode()) for id in ids]
    return Submission(name, writes, rendered, **more)  # type: ignore[arg-type]


def kept(outcome: Outcome) -> Kept:
    assert isinstance(outcome, Kept), outcome
    return outcome


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LogPlace]:
    """Returns the place of a log that was never written, another one with each call."""
    if request.param == "postgresql":
        new_database: NewDatabase = request.getfixturevalue("new_database")
        return lambda: LogPlace.of_database(new_database())
    numbers = count()
    return lambda: LogPlace.of_file(tmp_path / f"{next(numbers)}.sqlite")


@pytest.fixture
def place(new_place: Callable[[], LogPlace]) -> LogPlace:
    return new_place()


@pytest.fixture
def log(place: LogPlace) -> Iterator[Log]:
    with closing(place.open()) as log:
        yield log


def everything(log: Log, name: str = "docs", after: int = 0) -> list[tuple[int, str]]:
    operations, _ = log.after(name, after, 1_000_000)
    return [(operation.seq, operation.id) for operation in operations]


def test_a_log_that_was_never_written_does_not_exist(place: LogPlace) -> None:
    assert place.existing() is None
    place.open().close()
    found = place.existing()
    assert found is not None
    found.close()


def test_numbers_rise_without_a_gap_and_answers_contain_them(log: Log) -> None:
    [one, two] = map(kept, log.commit([put("a", "b"), put("c")], CAPS))
    assert (one.answer, one.seq, two.answer, two.seq) == (b"from 1", 2, b"from 3", 3)
    assert everything(log) == [(1, "a"), (2, "b"), (3, "c")]
    assert log.head() == 3


def test_only_the_newest_operation_on_a_document_stays(log: Log) -> None:
    log.commit([put("a", "b", "a")], CAPS)
    log.commit([Submission("docs", [Write("b", None)], rendered)], CAPS)
    operations, upto = log.after("docs", 0, 10)
    assert [(o.seq, o.id, o.fields is None) for o in operations] == [
        (3, "a", False),
        (4, "b", True),
    ]
    assert upto == 4


def test_collections_share_only_the_numbers(log: Log) -> None:
    log.commit([put("a"), put("a", name="other"), put("b")], CAPS)
    assert everything(log) == [(1, "a"), (3, "b")]
    assert log.after("other", 0, 10)[1] == 3
    assert log.after("nobody's", 0, 10) == ([], 3)


def test_the_largest_documents_are_listed_without_rules(log: Log) -> None:
    log.commit([put("a"), put("b", text="long" * 9), put("c", name=".rules")], CAPS)
    assert [held.id for held in log.largest(2)] == ["b", "a"]
    assert [held.id for held in log.largest(1)] == ["b"]


def test_reading_continues_where_it_stopped(log: Log) -> None:
    log.commit([put(*"abcde"), put("x", name="other")], CAPS)
    seen, upto = [], 0
    while True:
        operations, upto = log.after("docs", upto, 2)
        if not operations:
            break
        seen += [operation.id for operation in operations]
    assert (seen, upto) == (list("abcde"), 6)


def test_large_documents_are_read_a_few_at_a_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.documents.log._READ_BYTES", 40)
    log.commit([put(*"abc"), put("large", text="x" * 100), put("d")], CAPS)  # 14 bytes each
    steps, upto = [], 0
    while upto < 5:
        operations, upto = log.after("docs", upto, 10)
        steps.append(([operation.id for operation in operations], upto))
    assert steps == [(["a", "b"], 2), (["c"], 3), (["large"], 4), (["d"], 5)]


def test_a_restart_changes_nothing(place: LogPlace) -> None:
    first = place.open()
    first.commit([put("a", "b")], CAPS)
    first.close()
    again = place.existing()
    assert again is not None
    with closing(again):
        assert (again.id, everything(again), again.head()) == (first.id, [(1, "a"), (2, "b")], 2)


def test_each_log_has_its_own_id(new_place: Callable[[], LogPlace]) -> None:
    with closing(new_place().open()) as one, closing(new_place().open()) as two:
        assert one.id != two.id


def test_a_request_sent_twice_is_stored_once_and_gets_the_same_answer(log: Log) -> None:
    submission = put("a", "b", key="k", digest=b"1")
    [first] = log.commit([submission], CAPS)
    log.commit([put("c")], CAPS)
    [again, in_the_same_batch] = log.commit([submission, submission], CAPS)
    assert kept(again) == kept(in_the_same_batch) == Kept(b"from 1", 2, again=True)
    assert kept(first).again is False
    assert everything(log) == [(1, "a"), (2, "b"), (3, "c")]


def test_two_requests_with_one_key_in_one_commit_are_stored_once(log: Log) -> None:
    submission = put("a", key="k", digest=b"1")
    first, second = map(kept, log.commit([submission, submission], CAPS))
    assert (first.seq, second.seq, second.again) == (1, 1, True)
    assert log.head() == 1


def test_a_reused_key_is_refused_and_other_requests_are_stored(log: Log) -> None:
    log.commit([put("a", key="k", digest=b"1")], CAPS)
    refused, fine = log.commit([put("b", key="k", digest=b"2"), put("c")], CAPS)
    assert isinstance(refused, KeyReused)
    assert kept(fine).seq == 2
    assert everything(log) == [(1, "a"), (2, "c")]


def test_a_key_is_free_again_after_a_day(
    log: Log, place: LogPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commit([put("a", key="k", digest=b"1")], CAPS)
    monkeypatch.setattr(documents_log, "KEYS_KEPT_S", -1)
    # A new connection removes expired keys with its first commit.
    with closing(place.open()) as again:
        [outcome] = again.commit([put("b", key="k", digest=b"2")], CAPS)
    assert kept(outcome).seq == 2


@pytest.mark.parametrize("caps", [Caps(documents=3), Caps(bytes=60)])
def test_caps_count_operations_that_no_bundle_contains(log: Log, caps: Caps) -> None:
    [fine] = log.commit([put("a", "b", "c")], caps)
    kept(fine)
    refused, elsewhere = log.commit([put("d", "e"), put("d", name="other")], caps)
    assert isinstance(refused, TooManyLive)
    assert kept(elsewhere).seq == 4
    [compacted] = log.commit([put("d", after=3)], caps)
    assert kept(compacted).seq == 5


@pytest.mark.parametrize("caps", [Caps(documents=3), Caps(bytes=42)])
def test_a_full_log_accepts_replacements_and_deletions(log: Log, caps: Caps) -> None:
    log.commit([put("a", "b", "c")], caps)
    delete = Submission("docs", [Write("a", None)], rendered)
    outcomes = log.commit([put("a", "c"), put("c", "b", "a"), delete], caps)
    assert [kept(outcome).seq for outcome in outcomes] == [5, 8, 9]
    [refused] = log.commit([put("b", "d", "e")], caps)
    assert isinstance(refused, TooManyLive)
    assert everything(log) == [(6, "c"), (7, "b"), (9, "a")]
    assert log.head() == 9


def test_caps_include_writes_of_other_workers(
    log: Log, place: LogPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commit([put("a")], Caps(documents=2))
    with closing(place.open()) as other:
        other.commit([put("b", "c", "d")], CAPS)
    monkeypatch.setattr("fullrank_service.documents.log._COUNT_S", -1)
    [refused] = log.commit([put("e")], Caps(documents=2))
    assert isinstance(refused, TooManyLive)


def test_a_commit_that_fails_in_the_middle_stores_nothing(log: Log) -> None:
    fails = Mock(side_effect=RuntimeError("no answer"))
    log.commit([put("a")], CAPS)
    with pytest.raises(RuntimeError):
        log.commit(
            [put("b", key="k", digest=b"1"), Submission("docs", put("c").writes, fails)], CAPS
        )
    assert everything(log) == [(1, "a")]
    [again] = log.commit([put("b", key="k", digest=b"1")], CAPS)
    assert (kept(again).seq, kept(again).again) == (2, False)


def test_removed_operations_are_noted_and_their_numbers_never_reused(log: Log) -> None:
    log.commit([put(*"abc"), put("x", name="other")], CAPS)
    assert log.remove("docs", 2, min_age_s=3600) == 0
    assert log.removed("docs") == 0
    assert log.remove("docs", 3, min_age_s=-1) == 3
    assert (log.removed("docs"), log.removed("other")) == (3, 0)
    assert log.remove("other", 4, min_age_s=-1) == 1
    assert everything(log) == []
    assert log.head() == 4
    [outcome] = log.commit([put("d")], CAPS)
    assert kept(outcome).seq == 5
    assert log.after("docs", 0, 10)[1] == 5


def test_what_a_clock_stamped_before_it_was_set_back_is_due(
    place: LogPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with monkeypatch.context() as ahead, closing(place.open()) as log:
        ahead.setattr(time, "time", lambda: now + 365 * 86_400)
        log.commit([put("a", key="k", digest=b"1"), put("a")], CAPS)
    with closing(place.open()) as log:
        [outcome] = log.commit([put("b", key="k", digest=b"2")], CAPS)
        assert kept(outcome).seq == 3
        assert log.remove("docs", 2, min_age_s=60) == 1
        assert log.remove("docs", 3, min_age_s=60) == 0  # written a moment ago


def delete(*ids: str) -> Submission:
    return Submission("docs", [Write(id, None) for id in ids], rendered)


def test_one_request_may_write_a_document_many_times(log: Log) -> None:
    """More writes than a statement stores, each id again within a statement and in the next ones."""
    ids = [str(i * i % 71) for i in range(1, 351)]
    writes = [Write(id, json.dumps({"text": f"{seq}"}).encode()) for seq, id in enumerate(ids, 1)]
    [outcome] = log.commit([Submission("docs", writes, rendered)], CAPS)
    assert kept(outcome) == Kept(b"from 1", 350)
    last = {id: seq for seq, id in enumerate(ids, 1)}
    assert everything(log) == sorted((seq, id) for id, seq in last.items())


def test_a_document_that_was_written_meanwhile_is_not_overwritten(log: Log) -> None:
    log.commit([put("a"), put("b"), put("a", text="y")], CAPS)
    [changed] = log.commit([put("a", unchanged_since=2)], CAPS)
    assert isinstance(changed, Changed)
    assert changed.seq == 3
    [fine, new] = log.commit([put("a", unchanged_since=3), put("c", unchanged_since=0)], CAPS)
    assert (kept(fine).seq, kept(new).seq) == (4, 5)


def test_a_log_that_ends_before_what_was_read_of_it_stores_nothing(log: Log) -> None:
    log.commit([put("a", "b")], CAPS)
    [refused, fine] = log.commit([put("c", seen=3), put("d", seen=2)], CAPS)
    assert isinstance(refused, LogError)
    assert "has lost operations" in str(refused)
    assert kept(fine).seq == 3
    assert everything(log) == [(1, "a"), (2, "b"), (3, "d")]


def test_numbers_that_a_restored_log_lacks_are_never_used(log: Log) -> None:
    log.commit([put("a")], CAPS)
    log.skip("docs", 7)
    log.skip("docs", 5)
    assert (log.head(), log.removed("docs")) == (7, 7)
    [outcome] = log.commit([put("b")], CAPS)
    assert kept(outcome).seq == 8


def test_a_snapshot_stays_as_it_was_while_others_write(log: Log, place: LogPlace) -> None:
    log.commit([put("a")], CAPS)
    with closing(place.open()) as other, log.snapshot():
        assert log.head() == 1
        other.commit([put("a", text="y"), put("b")], CAPS)
        assert (log.head(), everything(log), log.removed("docs")) == (1, [(1, "a")], 0)
    assert everything(log) == [(2, "a"), (3, "b")]


def test_concurrent_writers_never_share_a_number_and_readers_miss_none(place: LogPlace) -> None:
    """4 connections over no log, 50 commits each: every number once, and a reader sees them in order without a gap."""
    numbers: list[int] = []
    barrier = threading.Barrier(5)
    seen: list[int] = []
    deadline = time.monotonic() + 60

    def write(who: int) -> None:
        barrier.wait()
        log = copy(place).open()
        for i in range(50):
            numbers.extend(kept(o).seq for o in log.commit([put(f"{who}-{i}")], CAPS))
        log.close()

    def read() -> None:
        barrier.wait()
        log, upto = copy(place).open(), 0
        while upto < 200 and time.monotonic() < deadline:
            operations, upto = log.after("docs", upto, 7)
            seen.extend(operation.seq for operation in operations)
        log.close()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 201))
    assert seen == list(range(1, 201))
