"""The nearest frequent words, and what cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.related import related
from tests.planted import write_lines, write_qrels


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    texts = [
        "Spock of Star Trek. The klingon ship",
        "star trek klingon",
        "a star in the sky",
        "the sky; the ship",
    ]
    write_lines(
        tmp_path / "corpus.jsonl",
        [{"_id": str(i), "title": "", "text": text} for i, text in enumerate(texts)],
    )
    write_qrels(tmp_path / "qrels" / "train.tsv", [("0", "1")])
    return read_collection(tmp_path)


def test_nearest_words_of_words_and_bigrams(collection: Collection) -> None:
    """Own words are left out, coefficients equal hand-computed ones, ties go to the more frequent word."""
    spock, trek = related(collection, ["Spock", "Star Trek"], top=3)
    assert (spock.term, spock.occurs) == ("spock", 1)
    assert [(n.word, n.dice) for n in spock.nearest] == [
        ("of", 1.0),
        ("klingon", 2 / 3),
        ("ship", 2 / 3),
    ]
    assert (trek.term, trek.occurs) == ("star trek", 2)
    assert [(n.word, n.dice) for n in trek.nearest] == [
        ("klingon", 1.0),
        ("of", 2 / 3),
        ("spock", 2 / 3),
    ]
    assert trek.as_dict()["nearest"][0] == {"word": "klingon", "dice": 1.0}


def test_fewer_frequent_words_and_sentence_contexts_change_neighbours(
    collection: Collection,
) -> None:
    (spock,) = related(collection, ["spock"], frequent_words=2)
    assert [n.word for n in spock.nearest] == ["star", "the"]
    (spock,) = related(collection, ["spock"], context="sentence", top=2)
    assert [n.word for n in spock.nearest] == ["of", "trek"]


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("vulcan", "'vulcan' occurs in no document"),
        ("trek star", "'trek star' occurs in no document"),
        ("the star trek", "neither a word nor a 2-gram; it is cut into the, star, trek"),
        ("--", "'--' is neither a word nor a 2-gram"),
    ],
)
def test_an_unknown_term_is_refused(collection: Collection, term: str, message: str) -> None:
    with pytest.raises(CollectionError, match=message):
        related(collection, [term])
