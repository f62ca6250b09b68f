"""Resampled corpora: nothing made up, the same from the same seed, statistics as in the source."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import orjson
import pytest

from benchmarks.performance.resample import Line, Source, short_queries, write_corpus
from fullrank.text.words import count_words, words

SECTIONS = ("admin", "games", "libs")


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    """1,500 documents of three sections, words falling off by rank, some sentences in many of them."""
    draw = random.Random(7)
    vocabulary = [f"w{i}" for i in range(2000)]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    made = []
    for i in range(1500):
        section = SECTIONS[i % 3]
        sentences = ["This is of the house."] if draw.random() < 0.3 else []
        for _ in range(draw.choice((1, 2, 4, 9))):
            chosen = draw.choices(vocabulary, weights, k=draw.randint(5, 15))
            sentences.append(f"{section} {' '.join(chosen)}.")
        title = f"p{i}: {' '.join(draw.choices(vocabulary, weights, k=4))}"
        made.append(
            {"_id": f"p{i:05}", "title": title, "text": " ".join(sentences), "section": section}
        )
    return made


@pytest.fixture(scope="module")
def source(lines: list[Line]) -> Source:
    return Source(lines)


def first(source: Source, number: int, seed: int = 1, stretch: float = 1.0) -> list[Line]:
    return list(islice(source.documents(seed, stretch), number))


def test_the_same_seed_gives_the_same_corpus(source: Source, tmp_path: Path) -> None:
    assert first(source, 50) == first(source, 50)
    assert first(source, 50) != first(source, 50, seed=2)
    small, large = (
        (sum(write_corpus(source, tmp_path / str(n), n, seed=1, stretch=1.0)), n)
        for n in (1500, 2500)
    )
    assert small == (1500, 1500)
    assert large == (2500, 2500)
    written = [(tmp_path / str(n) / "corpus.jsonl").read_bytes() for n in (1500, 2500)]
    assert written[1].startswith(written[0])
    ids = [orjson.loads(line)["_id"] for line in written[1].splitlines()]
    assert ids == sorted(set(ids))
    assert len(ids) == 2500


def test_resampled_documents_contain_only_source_sentences(
    source: Source, lines: list[Line]
) -> None:
    held_out = {line["_id"] for line in source.held_out}
    assert 0 < len(held_out) < 150
    kept = [line for line in lines if line["_id"] not in held_out]
    sentences = {
        (line["section"], sentence + ".")
        for line in kept
        for sentence in line["text"].removesuffix(".").split(". ")
    }
    names, descriptions = ({line["title"].split(": ")[part] for line in kept} for part in (0, 1))
    for line in first(source, 300):
        for sentence in line["text"].removesuffix(".").split(". ") if line["text"] else []:
            assert (line["section"], sentence + ".") in sentences
        name, description = line["title"].split(": ")
        assert name in names
        assert description in descriptions
        assert 0 <= line["draw"] < 1


def shares(lines: list[Line]) -> list[float]:
    """Return the shares of documents that have the words of ranks 1, 10, 100 and 1,000."""
    counts = Counter(
        word for line in lines for word in count_words(f"{line['title']}\n{line['text']}")
    )
    ranked = sorted(counts.values(), reverse=True)
    return [ranked[rank - 1] / len(lines) for rank in (1, 10, 100, 1000)]


def test_words_keep_their_frequency(source: Source, lines: list[Line]) -> None:
    kept = [line for line in lines if line not in source.held_out]
    assert shares(first(source, 6000)) == pytest.approx(shares(kept), rel=0.15)


def test_sections_keep_their_frequency(source: Source, lines: list[Line]) -> None:
    kept = [line for line in lines if line not in source.held_out]
    found = [line["section"] for line in first(source, 3000)]
    for section in SECTIONS:
        share = np.mean([line["section"] == section for line in kept])
        assert np.mean([one == section for one in found]) == pytest.approx(float(share), abs=0.04)


def test_the_stretch_gives_the_requested_number_of_terms(source: Source) -> None:
    stretch = source.stretch(50, 1)
    found = [
        len(count_words(f"{line['title']}\n{line['text']}"))
        for line in first(source, 3000, seed=3, stretch=stretch)
    ]
    assert np.mean(found) == pytest.approx(50, rel=0.06)
    assert source.stretch(0, 1) == 1


def test_queries_are_held_out(source: Source) -> None:
    measured = source.held_out[::2]
    texts = [" ".join(words(line["text"])) for line in measured]
    titles = {line["title"].split(": ")[1] for line in measured}
    queries = short_queries(source, 40, 1)
    assert len(queries) == 40
    assert len(set(queries)) > 35
    assert queries == short_queries(source, 40, 1) != short_queries(source, 40, 2)
    for i, query in enumerate(queries):
        assert query in titles if i % 2 == 0 else any(text.startswith(query) for text in texts)
    # Of other documents; boilerplate may read alike.
    assert len(set(queries) & set(short_queries(source, 40, 1, tuning=True))) < 5
