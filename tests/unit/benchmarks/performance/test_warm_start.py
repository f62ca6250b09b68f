"""The collections before and after new queries."""

from __future__ import annotations

from pathlib import Path

from benchmarks.performance.warm_start import splits_of
from fullrank_trainer.collection import read_collection
from tests.planted import write_planted


def test_some_queries_are_new_and_nothing_else_changes(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path))
    found = splits_of(collection)
    before, after = found["before"], found["after"]
    assert before["valid"] == after["valid"]
    assert set(before["train"]) < set(after["train"])
    new = {query for query, _ in set(after["train"]) - set(before["train"])}
    assert not new & {query for query, _ in before["train"]}
    assert 0.02 < len(new) / len({query for query, _ in after["train"]}) < 0.25
    assert all("test" not in split for split in found.values())
