"""Recorded times of shards: what is measured, and what the file holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fleet.recording import add_entry, read_recorded, record
from tests.golden.test_golden import WORDS
from tests.unit.fleet.jobs.planted import corpus_of, planted_bundle


def test_each_shard_of_a_set_is_measured(tmp_path: Path) -> None:
    bundle = planted_bundle(tmp_path / "bundles")
    (tmp_path / "corpus").mkdir()
    corpus = corpus_of(tmp_path / "corpus", 120)
    one = record(bundle, corpus, 1, WORDS[:3], tmp_path / "one")
    three = record(bundle, corpus, 3, WORDS[:3], tmp_path / "three")
    assert (one.shards, one.documents) == (1, 120)
    assert (three.shards, three.documents) == (3, 40)
    # Every shard has the same model, and a third of the documents.
    assert three.model_bytes == one.model_bytes
    folder = next((tmp_path / "one").glob("*/*/shard-00000"))
    model = sum(file.stat().st_size for file in (folder / "model").rglob("*") if file.is_file())
    every = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert (one.model_bytes, one.bytes) == (model, every - model)
    times = one.answer_us
    assert list(times) == sorted(times)
    assert times[0] > 0


def test_an_entry_replaces_the_one_of_its_size(tmp_path: Path) -> None:
    file, known = tmp_path / "recorded.json", read_recorded()
    for own in [*known.scaling, replace(known.scaling[0], bytes=7)]:
        add_entry(file, "scaling", own)
    for own in known.fleet.values():
        add_entry(file, "fleet", own)
    add_entry(file, "process_us", 2_000.4)
    found = read_recorded(file)
    assert [own.bytes for own in found.scaling] == [7, *(own.bytes for own in known.scaling[1:])]
    assert found.fleet == known.fleet
    assert found.call_s == pytest.approx(0.002 - known.fleet[1].answer_s.mean())
