"""A corpus of any size, resampled from a collection's sentences with its statistics; and held-out queries.

How a document is made:

1. Draw a document of the source uniformly. The new one gets its section, and its length in words times a constant
   stretch.
2. Title: the name (before the first ": ") of one neighbour of the drawn document and the description (after it) of
   another.
3. Text: distinct sentences of the section, half of them from the NEAR sentences around the drawn document (ids ascend,
   so these are of the same family of packages), half from the whole section. Frequent sentences are drawn more often,
   so boilerplate stays as frequent as it was. The last sentence is kept with the probability that makes the expected
   length right; every document has at least one.

So words occur with the same words as in the source, the distribution of lengths is stretched, and the document
frequency of a word is that of the source times the stretch, down to words of a single document: the corpus grows, the
vocabulary does not.  No word is invented.

The stretch gives a document ``terms`` distinct words (of title and text, as fullrank.text splits them) on average;
Debian's package descriptions have 45 (median 39), and terms = 0 uses a stretch of 1.

Documents are a stream from one seed: the first n of a larger corpus are the corpus of n. A twentieth of the source (by
hash of the id) is held out. No sentence or title comes from there unless other documents have it too, and all queries
come from there. Each document has ``section`` and ``draw``, a uniform number in 0..1, for filters.
"""

from __future__ import annotations

import gzip
import random
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from fullrank.text.words import count_words, words

NEAR = 200
TERMS = 60
_HELD_OUT = 20
_NEIGHBOURS = 30  # documents on either side that give a title
_PILOT = 4000  # documents that determine the stretch
_TRIES = 40  # repeated sentences in a row, before the document is left as it is
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

Line = dict[str, Any]
"""A document as corpus.jsonl holds it."""


@dataclass(frozen=True)
class _Section:
    """Sentences of one section; ``first[i]`` is the index of document i's first sentence."""

    name: str
    names: list[str]
    descriptions: list[str]
    lengths: list[int]
    sentences: list[str]
    sizes: list[int]
    first: list[int]


class Source:
    """The sentences of a collection; ``held_out`` documents are the source of queries."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.held_out: list[Line] = []
        self._sections: dict[str, _Section] = {}
        self._places: list[tuple[_Section, int]] = []
        for line in lines:
            if zlib.crc32(line["_id"].encode()) % _HELD_OUT == 0:
                self.held_out.append(line)
            else:
                self._take(line)

    def _take(self, line: Line) -> None:
        name, text = line["section"], line["text"]
        section = self._sections.setdefault(name, _Section(name, [], [], [], [], [], []))
        self._places.append((section, len(section.names)))
        before, _, after = line["title"].partition(": ")
        section.names.append(before)
        section.descriptions.append(after)
        section.first.append(len(section.sentences))
        section.lengths.append(len(words(line["title"])) + len(words(text)))
        for sentence in _SENTENCE.split(text):
            if size := len(words(sentence)):
                section.sentences.append(sentence)
                section.sizes.append(size)

    def documents(self, seed: int, stretch: float) -> Iterator[Line]:
        """Yield the endless corpus of a seed, in ascending order of id."""
        draw = random.Random(seed)
        for number in range(10**9):
            section, place = draw.choice(self._places)
            title = _title(draw, section, place)
            target = stretch * section.lengths[place] - len(words(title))
            yield {
                "_id": f"r{number:09}",
                "title": title,
                "text": " ".join(_sentences(draw, section, place, target)),
                "section": section.name,
                "draw": round(draw.random(), 9),
            }

    def stretch(self, terms: float, seed: int) -> float:
        """Return the stretch at which a document has ``terms`` distinct words on average; 1 for terms = 0."""
        found = 1.0
        for _ in range(6 if terms else 0):
            pilot = islice(self.documents(seed, found), _PILOT)
            mean = float(np.mean([len(count_words(_joined(line))) for line in pilot]))
            found *= terms / mean
        return found


def _title(draw: random.Random, section: _Section, place: int) -> str:
    low, high = max(0, place - _NEIGHBOURS), min(len(section.names), place + _NEIGHBOURS + 1)
    name, description = (draw.randrange(low, high) for _ in range(2))
    return f"{section.names[name]}: {section.descriptions[description]}"


def _sentences(draw: random.Random, section: _Section, place: int, target: float) -> list[str]:
    """Draw distinct sentences with ``target`` words in expectation; at least one."""
    count, length, tries = len(section.sentences), 0, 0
    low = max(0, section.first[place] - NEAR // 2)
    high = min(count, low + NEAR)
    chosen: dict[str, None] = {}
    while count and tries < _TRIES and (length < target or not chosen):
        i = (
            draw.randrange(low, high)
            if draw.random() < 0.5 and high > low
            else draw.randrange(count)
        )
        sentence, size = section.sentences[i], section.sizes[i]
        if sentence in chosen:
            tries += 1
            continue
        if chosen and length + size > target and draw.random() >= (target - length) / size:
            break
        chosen[sentence] = None
        length, tries = length + size, 0
    return list(chosen)


def _joined(line: Line) -> str:
    return f"{line['title']}\n{line['text']}"


def read_source(folder: Path) -> Source:
    """Return the documents of a collection whose lines have title, text and section."""
    with gzip.open(folder / "corpus.jsonl.gz", "rb") as lines:
        return Source(map(orjson.loads, lines))


def write_corpus(
    source: Source, out: Path, documents: int, *, seed: int, stretch: float
) -> Iterator[int]:
    """Write ``out``/corpus.jsonl a thousand lines at a time; yield the number of lines written."""
    lines = source.documents(seed, stretch)
    out.mkdir(parents=True, exist_ok=True)
    partial_path = out / "corpus.jsonl.part"
    with partial_path.open("wb") as file:
        for start in range(0, documents, 1000):
            block = list(islice(lines, min(1000, documents - start)))
            file.writelines(orjson.dumps(line) + b"\n" for line in block)
            yield len(block)
    partial_path.replace(out / "corpus.jsonl")


def short_queries(source: Source, number: int, seed: int, *, tuning: bool = False) -> list[str]:
    """Draw held-out queries: half descriptions from titles, half the first three to eight words of a text.

    tuning  from one half of the held out documents, to tune with; else from the other, to measure with
    """
    draw = random.Random(seed)
    queries: list[str] = []
    for i, line in enumerate(_drawn(draw, source.held_out[int(tuning) :: 2], number)):
        title = line["title"].partition(": ")[2]
        text = " ".join(words(line["text"])[: draw.randint(3, 8)])
        queries.append((title if i % 2 == 0 else text) or line["title"])
    return queries


def _drawn(draw: random.Random, lines: Sequence[Line], number: int) -> list[Line]:
    """Draw without repeats while there are enough."""
    rounds = [draw.sample(lines, len(lines)) for _ in range(-(-number // len(lines)))]
    return [line for round_ in rounds for line in round_][:number]
