"""The log: one order, no write twice, none half."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.documents import idempotency
from service.documents.idempotency import KeyReused
from service.documents.log import Log, Outcome, TooManyLive
from service.documents.logerrors import LogError, LogFull
from service.documents.logfile import LogFile
from service.documents.submission import Caps, Kept, Submission, Write

CAPS = Caps()


def rendered(first: int) -> bytes:
    return f"from {first}".encode()


def put(*ids: str, name: str = "docs", text: str = "x", **more: object) -> Submission:
    writes = [Write(id, json.dumps({"text": text}).encode()) for id in ids]
    return Submission(name, writes, rendered, **more)  # type: ignore[arg-type]


def kept(outcome: Outcome) -> Kept:
    assert isinstance(outcome, Kept), outcome
    return outcome


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(tmp_path / "documents.sqlite")) as log:
        yield log


def everything(log: Log, name: str = "docs", after: int = 0) -> list[tuple[int, str]]:
    operations, _ = log.after(name, after, 1_000_000)
    return [(operation.seq, operation.id) for operation in operations]


def test_a_log_that_was_never_written_does_not_exist(tmp_path: Path) -> None:
    assert Log.existing(tmp_path / "documents.sqlite") is None
    (tmp_path / "documents.sqlite").touch()
    assert Log.existing(tmp_path / "documents.sqlite") is None


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


def test_reading_continues_where_it_stopped(log: Log) -> None:
    log.commit([put(*"abcde"), put("x", name="other")], CAPS)
    seen, upto = [], 0
    while True:
        operations, upto = log.after("docs", upto, 2)
        if not operations:
            break
        seen += [operation.id for operation in operations]
    assert (seen, upto) == (list("abcde"), 6)


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    first = Log(path)
    first.commit([put("a", "b")], CAPS)
    first.close()
    again = Log.existing(path)
    assert again is not None
    with closing(again):
        assert (again.id, everything(again), again.head()) == (first.id, [(1, "a"), (2, "b")], 2)


def test_each_log_has_its_own_id(tmp_path: Path) -> None:
    with closing(Log(tmp_path / "one")) as one, closing(Log(tmp_path / "two")) as two:
        assert one.id != two.id


def test_commits_are_synced(log: Log) -> None:
    assert log.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log.connection.execute("PRAGMA synchronous").fetchone() == (2,)


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


def test_a_key_is_free_again_after_a_day(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.commit([put("a", key="k", digest=b"1")], CAPS)
    monkeypatch.setattr(idempotency, "KEPT_S", -1)
    # A new connection removes expired keys with its first commit.
    with closing(Log(log.path)) as again:
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


def test_caps_include_writes_of_other_workers(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.commit([put("a")], Caps(documents=2))
    with closing(Log(log.path)) as other:
        other.commit([put("b", "c", "d")], CAPS)
    monkeypatch.setattr("service.documents.log._COUNT_S", -1)
    [refused] = log.commit([put("e")], Caps(documents=2))
    assert isinstance(refused, TooManyLive)


def test_a_commit_that_fails_in_the_middle_stores_nothing(log: Log) -> None:
    def fails(first: int) -> bytes:
        raise RuntimeError("no answer")

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


def test_what_was_written_after_a_number_is_known_or_refused(log: Log) -> None:
    log.commit(
        [
            put("a", "b"),
            put("x", name="other"),
            put("a", "c"),
            Submission("docs", [Write("b", None)], rendered),
        ],
        CAPS,
    )
    assert log.written_after("docs", 6, 9) == []
    assert sorted(log.written_after("docs", 5, 9) or []) == ["b"]
    assert sorted(log.written_after("docs", 0, 9) or []) == ["a", "b", "c"]
    assert sorted(log.written_after("docs", 0, 3) or []) == ["a", "b", "c"]
    assert log.written_after("docs", 0, 2) is None
    assert log.remove("docs", 5, min_age_s=-1) == 2
    assert log.written_after("docs", 4, 9) is None
    assert log.written_after("docs", 5, 9) == ["b"]


def test_concurrent_writers_never_share_a_number(tmp_path: Path) -> None:
    """4 connections, made at once over no file, 50 commits each: every number once."""
    path = tmp_path / "documents.sqlite"
    numbers: list[int] = []
    barrier = threading.Barrier(4)

    def write(who: int) -> None:
        barrier.wait()
        log = Log(path)
        for i in range(50):
            numbers.extend(kept(o).seq for o in log.commit([put(f"{who}-{i}")], CAPS))
        log.close()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 201))
    with closing(Log(path)) as log:
        assert len(everything(log)) == 200


def corrupt(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def of_the_future(path: Path) -> None:
    log = Log(path)
    log.connection.execute("PRAGMA user_version = 99")
    log.close()


@pytest.mark.parametrize("damage", [corrupt, of_the_future])
def test_a_file_that_is_not_a_log_is_an_error_with_its_name(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "documents.sqlite"
    damage(path)
    with pytest.raises(LogError, match=r"documents\.sqlite: "):
        Log(path)


def test_a_full_disk_stores_nothing_and_writes_work_again_when_there_is_room(log: Log) -> None:
    log.commit([put("a")], CAPS)
    pages = log.connection.execute("PRAGMA page_count").fetchone()[0]
    log.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LogFull, match="No space left"):
        log.commit([put("b"), put("c", text="x" * 100_000)], CAPS)
    assert everything(log) == [(1, "a")]
    log.connection.execute("PRAGMA max_page_count = 1000000")
    [outcome] = log.commit([put("b")], CAPS)
    assert kept(outcome).seq == 2


def test_a_locked_log_is_an_error_that_says_so(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.documents.log._BUSY_S", 0.01)
    log.commit([put("a")], CAPS)
    with (
        closing(Log(log.path)) as other,
        closing(sqlite3.connect(log.path, isolation_level=None)) as holder,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogError, match="another process"):
            other.commit([put("b")], CAPS)
        assert everything(other) == [(1, "a")]
        holder.execute("ROLLBACK")


def remove(path: Path) -> None:
    for name in path.parent.glob(f"{path.name}*"):
        name.unlink()


def remove_the_write_ahead_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace_by_a_copy(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    Path(f"{path}.copy").replace(path)


@pytest.mark.parametrize(
    "lose", [remove, remove_the_write_ahead_log, remove_the_folder, replace_by_a_copy]
)
def test_a_write_that_no_file_at_the_path_contains_is_not_acknowledged(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    path = tmp_path / "log" / "documents.sqlite"
    path.parent.mkdir()
    with closing(Log(path)) as log:
        log.commit([put("a")], CAPS)
        lose(path)
        with pytest.raises(LogError, match="removed or replaced"):
            log.commit([put("b")], CAPS)


def test_a_worker_does_not_start_a_new_log_in_the_place_of_a_lost_one(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    file = LogFile(path)
    assert file.existing() is None
    file.open().close()
    remove(path)
    for use in (file.open, file.existing):
        with pytest.raises(LogError, match="the log was removed; restart"):
            use()
    Log(path).close()
    with pytest.raises(LogError, match="another log has replaced it; restart"):
        file.open()
    # A restarted service takes what is there.
    LogFile(path).open().close()
