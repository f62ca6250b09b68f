"""Bytes of clicks in the log: what the readers of the log find, and what the files take."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.fleet.click_bytes import write_log
from fullrank.events.log import EventLog

ANSWERS = [(f"query {i}", [f"document-{i}-{place}" for place in range(10)]) for i in range(20)]


def test_every_list_has_one_click_and_the_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    found = write_log(ANSWERS, 400, tmp_path)
    log = EventLog(tmp_path)
    lists, events = list(log.lists()), list(log.events())
    assert (len(lists), len(events)) == (400, 400)
    shown = {own.query_id: own for own in lists}
    assert len(shown) == 400
    for event in events:
        own = shown[event.texts["query_id"]]
        assert event.is_click
        assert event.object_id in own.ids
        assert event.person == own.person
    sealed = list(tmp_path.glob("*.jsonl.gz"))
    assert sum(file.stat().st_size for file in sealed) == pytest.approx(
        400 * (found["bytes_a_list"] + found["bytes_an_event"]), abs=50
    )
    assert found["click_bytes"] == pytest.approx(
        found["bytes_a_list"] + found["bytes_an_event"], abs=0.6
    )
    # Random ids and pseudonyms do not compress below their entropy: 16 bytes of the id alone, in either line.
    assert min(found["bytes_a_list"], found["bytes_an_event"]) > 16
    plain = sum(len(gzip.decompress(file.read_bytes())) for file in sealed)
    assert plain / 400 > 2 * found["click_bytes"]
