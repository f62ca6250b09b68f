"""What is particular to the log in a file: its syncs, its disk, and the file itself, which may be removed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fullrank_service.documents.log import LogError, LogFull
from fullrank_service.documents.sqlitelog import LogPlace, SqliteLog
from tests.unit.service.documents.test_log import CAPS, everything, kept, put


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path / "documents.sqlite")) as log:
        yield log


def test_an_empty_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "documents.sqlite").touch()
    assert SqliteLog.existing(tmp_path / "documents.sqlite") is None


def test_commits_are_synced(log: SqliteLog) -> None:
    assert log.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log.connection.execute("PRAGMA synchronous").fetchone() == (2,)


def corrupt(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def of_the_future(path: Path) -> None:
    log = SqliteLog(path)
    log.connection.execute("PRAGMA user_version = 99")
    log.close()


@pytest.mark.parametrize("damage", [corrupt, of_the_future])
def test_a_file_that_is_not_a_log_is_an_error_with_its_name(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "documents.sqlite"
    damage(path)
    with pytest.raises(LogError, match=r"documents\.sqlite: "):
        SqliteLog(path)


def test_a_full_disk_stores_nothing_and_writes_work_again_when_there_is_room(
    log: SqliteLog,
) -> None:
    log.commit([put("a")], CAPS)
    pages = log.connection.execute("PRAGMA page_count").fetchone()[0]
    log.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LogFull, match="No space left"):
        log.commit([put("b"), put("c", text="x" * 100_000)], CAPS)
    assert everything(log) == [(1, "a")]
    log.connection.execute("PRAGMA max_page_count = 1000000")
    [outcome] = log.commit([put("b")], CAPS)
    assert kept(outcome).seq == 2


def test_a_locked_log_is_an_error_that_says_so(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.base.sqlite._BUSY_S", 0.01)
    log.commit([put("a")], CAPS)
    with (
        closing(SqliteLog(log.path)) as other,
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
    with closing(SqliteLog(path)) as log:
        log.commit([put("a")], CAPS)
        lose(path)
        with pytest.raises(LogError, match="removed or replaced"):
            log.commit([put("b")], CAPS)


def test_a_log_that_is_made_while_a_thread_looks_for_it_was_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"

    others = [1]

    def find() -> SqliteLog | None:
        found = SqliteLog.existing(path)
        if others:
            others.pop()
            place.open().close()  # another thread, right after this one has looked
        return found

    place = LogPlace(str(path), lambda: SqliteLog(path), find)
    assert place.existing() is None
    with closing(place.open()) as log:
        assert log.head() == 0


def test_a_worker_does_not_start_a_new_log_in_the_place_of_a_lost_one(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    file = LogPlace.of_file(path)
    assert file.existing() is None
    file.open().close()
    remove(path)
    for use in (file.open, file.existing):
        with pytest.raises(LogError, match="the log was removed; restart"):
            use()
    SqliteLog(path).close()
    with pytest.raises(LogError, match="another log has replaced it; restart"):
        file.open()
    # A restarted service takes what is there.
    LogPlace.of_file(path).open().close()
