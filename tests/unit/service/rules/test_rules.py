"""The rules of a worker follow the log."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from fullrank_service.base import errors
from fullrank_service.documents.sqlitelog import FILE, LogPlace
from fullrank_service.rules.routes import Rules

RULE = {"hide": ["a"]}


@pytest.fixture
def writer(tmp_path: Path) -> Rules:
    """Another worker, which does not follow."""
    return Rules(LogPlace.of_file(tmp_path / FILE))


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[Rules]:
    found = Rules(LogPlace.of_file(tmp_path / FILE), poll_s=0.005)
    found.start()
    yield found
    asyncio.run(found.close())


def put(rules: Rules, id: str, rule: dict[str, Any] = RULE, collection: str = "shop") -> None:
    asyncio.run(rules.put(collection, id, rule))


def becomes(rules: Rules, expected: set[str], collection: str = "shop") -> None:
    """Wait until a worker sees these rules."""

    async def wait() -> None:
        async with asyncio.timeout(10):
            while rules.ids(collection) != expected:
                await asyncio.sleep(0.005)

    asyncio.run(wait())


def test_changes_are_followed(writer: Rules, rules: Rules) -> None:
    assert rules.ids("shop") == set()
    for id in "abc":
        put(writer, id)
    put(writer, "a", collection="other")
    becomes(rules, {"a", "b", "c"})
    becomes(rules, {"a"}, "other")
    asyncio.run(writer.delete("shop", "c"))
    becomes(rules, {"a", "b"})
    put(writer, "b", {"hide": ["b"], "query": {"is": "x"}})
    put(writer, "d")
    becomes(rules, {"a", "b", "d"})
    assert [rule.hide for rule in rules.matching("shop", "x")] == [("a",), ("b",), ("a",)]
    assert [rule.id for rule in rules.matching("shop", "y")] == ["a", "d"]


def test_a_removed_log_changes_nothing_and_is_reported(
    writer: Rules, rules: Rules, tmp_path: Path
) -> None:
    put(writer, "a")
    becomes(rules, {"a"})
    (tmp_path / FILE).unlink()
    with pytest.raises(errors.RulesUnavailable):
        put(rules, "b")
    assert rules.ids("shop") == {"a"}


def test_pages_of_rules_follow_each_other(writer: Rules) -> None:
    def page(after: str, limit: int = 2) -> list[str]:
        return [rule["id"] for rule in asyncio.run(writer.page("shop", after, limit))]

    assert page("", 9) == []
    assert asyncio.run(writer.get("shop", "a")) is None
    asyncio.run(writer.delete("shop", "a"))
    for id in ("b", "a", "c"):
        put(writer, id)
    put(writer, "d", collection="other")
    assert [page(after) for after in ("", "b", "c")] == [["a", "b"], ["c"], []]


def test_the_rules_of_a_former_file_move_into_the_log(
    writer: Rules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    former = tmp_path / "rules.sqlite"
    own = {"hide": ["own"]}
    put(writer, "c", own)  # of another router, say
    put(writer, "d")
    asyncio.run(writer.delete("shop", "d"))
    with closing(sqlite3.connect(former)) as file:
        file.execute("CREATE TABLE rules (revision, collection, id, rule)")
        for id in "acd":
            row = ("shop", id, orjson.dumps(RULE))
            file.execute("INSERT INTO rules VALUES (1, ?, ?, ?)", row)
        file.commit()
    for _ in range(2):  # the second time after a crash that left the file
        shutil.copy(former, tmp_path / "left")
        rules = Rules(LogPlace.of_file(tmp_path / FILE), former)
        rules.start()
        assert rules.ids("shop") == {"a", "c"}
        assert asyncio.run(rules.get("shop", "a")) == RULE
        assert asyncio.run(rules.get("shop", "c")) == own
        asyncio.run(rules.close())
        assert not former.exists()
        (tmp_path / "left").rename(former)
    assert f"{former}: the log has other versions of these rules" in caplog.text
    assert "shop/c, shop/d" in caplog.text
    assert "shop/a" not in caplog.text


def test_a_former_file_that_was_never_written_is_moved_away(tmp_path: Path) -> None:
    (former := tmp_path / "rules.sqlite").touch()
    rules = Rules(LogPlace.of_file(tmp_path / FILE), former)
    rules.start()
    assert not former.exists()
    put(rules, "a")
    becomes(rules, {"a"})
    asyncio.run(rules.close())
