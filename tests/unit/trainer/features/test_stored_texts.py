"""Texts that are read from files when they are counted have the counts of texts in memory."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.encoding import Rows
from fullrank.text import sequences
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import InThisProcess
from tests.planted import write_lines, write_qrels

WORDS = ["red", "blue", "naïve", "state-of-the-art", "e-mail", "日本", "x1", "☃"]
FIELDS = ["title", "text"]


@pytest.fixture
def stored(tmp_path: Path) -> Collection:
    draw = random.Random(4)

    def text(most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(0, most)))

    documents = [{"_id": f"d{i}", "title": text(3), "text": text(30)} for i in range(60)]
    draw.shuffle(documents)
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_lines(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": text(6)} for i in range(40)])
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q0", "d0")])
    return read_collection(tmp_path, fields=FIELDS)


def in_memory(stored: Collection) -> Collection:
    return replace(stored, documents=[*stored.documents], queries=[*(stored.queries or ())])


def assert_equal(found: Rows, wanted: Rows) -> None:
    for mine, other in zip(found.arrays, wanted.arrays, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert found.width == wanted.width


@pytest.mark.parametrize("characters", [1, 90, 1_000_000])
def test_stored_texts_have_the_counts_of_texts_in_memory(
    stored: Collection, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "_CHUNK_CHARACTERS", characters)
    count, plain = InThisProcess(2), in_memory(stored)
    found, _ = count.words(stored, FIELDS)
    monkeypatch.undo()
    wanted, _ = count.words(plain, FIELDS)
    assert found.words == wanted.words
    assert len(found.columns) == 3
    for mine, other in zip(found.columns, wanted.columns, strict=True):
        assert_equal(mine, other)
    assert count.compounds(stored, FIELDS) == count.compounds(plain, FIELDS)
    phrases, of_documents = count.phrases(stored, "title")
    assert [*phrases.phrases] == [*count.phrases(plain, "title")[0].phrases]
    assert_equal(of_documents, count.phrases(plain, "title")[1])


def test_stored_texts_are_the_texts_of_the_fields(stored: Collection) -> None:
    plain = in_memory(stored)
    for name in FIELDS:
        wanted = plain.field_texts(name)
        texts = stored.field_texts(name)
        assert [*texts] == wanted == texts[:]
        assert texts[-3:7:-2] == wanted[-3:7:-2]
    assert [*stored.query_texts] == plain.query_texts
    assert stored.query_texts[-1] == plain.query_texts[-1]
    assert stored.queries == plain.queries
    assert stored.queries is not None
    assert stored.queries[1:3] == (plain.queries or [])[1:3]
    with pytest.raises(IndexError):
        stored.queries[40]
