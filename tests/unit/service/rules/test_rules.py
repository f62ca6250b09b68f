"""The rules of a worker follow the file, whatever happens to it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fullrank_service.base import errors
from fullrank_service.rules.rules import FILE, Rules, RulesError, RuleStore

RULE = b'{"hide":["a"]}'


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(tmp_path / FILE)


@pytest.fixture
def rules(store: RuleStore) -> Iterator[Rules]:
    found = Rules(store.path, poll_s=0.005)
    found.start()
    yield found
    asyncio.run(found.close())


def becomes(rules: Rules, expected: set[str], collection: str = "shop") -> None:
    """Wait until a worker sees these rules."""

    async def wait() -> None:
        async with asyncio.timeout(10):
            while rules.ids(collection) != expected:
                await asyncio.sleep(0.005)

    asyncio.run(wait())


def test_changes_are_followed(store: RuleStore, rules: Rules) -> None:
    assert rules.ids("shop") == set()
    for id in "abc":
        store.put("shop", id, RULE)
    store.put("other", "a", RULE)
    becomes(rules, {"a", "b", "c"})
    becomes(rules, {"a"}, "other")
    store.delete("shop", "c")  # the last one: its number is not used again
    becomes(rules, {"a", "b"})
    store.put("shop", "b", b'{"hide":["b"],"query":{"is":"x"}}')
    store.put("shop", "d", RULE)
    becomes(rules, {"a", "b", "d"})
    assert [rule.hide for rule in rules.matching("shop", "x")] == [("a",), ("b",), ("a",)]
    assert [rule.id for rule in rules.matching("shop", "y")] == ["a", "d"]


def test_another_file_has_other_rules(store: RuleStore, rules: Rules, tmp_path: Path) -> None:
    store.put("shop", "a", RULE)
    becomes(rules, {"a"})
    other = RuleStore(tmp_path / "other.sqlite")
    other.put("shop", "z", RULE)
    other.path.replace(store.path)
    becomes(rules, {"z"})
    store.path.unlink()
    becomes(rules, set())


def copy(source: Path, target: Path) -> None:
    """Overwrite a file without emptying it before.

    In another process: closing the file in this one would drop the locks that SQLite has here.
    """
    command = ["dd", f"if={source}", f"of={target}", "conv=notrunc", "status=none"]
    subprocess.run(command, check=True)


def test_a_damaged_file_changes_nothing_and_is_reported(
    store: RuleStore, rules: Rules, tmp_path: Path
) -> None:
    store.put("shop", "a", RULE)
    becomes(rules, {"a"})
    good, damaged = tmp_path / "good", tmp_path / "damaged"
    copy(store.path, good)
    damaged.write_bytes(b"no database" * 500)
    copy(damaged, store.path)

    async def write() -> None:
        await rules.put("shop", "b", {"hide": ["x"]})

    with pytest.raises(errors.RulesUnavailable):
        asyncio.run(write())
    assert rules.ids("shop") == {"a"}
    copy(good, store.path)
    store.put("shop", "b", RULE)
    becomes(rules, {"a", "b"})


def test_a_file_that_was_empty_for_a_moment_has_all_its_rules_again(
    store: RuleStore, rules: Rules, tmp_path: Path
) -> None:
    """As when a backup is copied into its place."""
    store.put("shop", "a", RULE)
    becomes(rules, {"a"})
    good = tmp_path / "good"
    copy(store.path, good)
    subprocess.run(["truncate", "--size=0", store.path], check=True)
    becomes(rules, set())
    copy(good, store.path)
    store.put("shop", "b", RULE)
    becomes(rules, {"a", "b"})


def test_a_file_of_a_later_release_is_refused(store: RuleStore) -> None:
    store.put("shop", "a", RULE)
    with sqlite3.connect(store.path) as file:
        file.execute("PRAGMA user_version = 9")
    file.close()
    with pytest.raises(RulesError, match="schema 9"):
        store.put("shop", "b", RULE)
    with pytest.raises(RulesError, match="schema 9"):
        store.get("shop", "a")


def test_pages_of_rules_follow_each_other(store: RuleStore) -> None:
    assert store.page("shop", "", 9) == []
    assert store.get("shop", "a") is None
    store.delete("shop", "a")
    for id in ("b", "a", "c"):
        store.put("shop", id, RULE)
    store.put("other", "d", RULE)
    pages = [[one.id for one in store.page("shop", after, 2)] for after in ("", "b", "c")]
    assert pages == [["a", "b"], ["c"], []]
