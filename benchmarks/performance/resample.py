"""A corpus of any size made of a collection's own sentences, its statistics kept; and queries held out of it.

    python -m benchmarks.performance.resample --documents 100000 --out DIR [--terms 60] [--seed 1]

How a document comes about:

1. A document of the source is drawn, each as likely as any other. The new one has its section, and its length in words
   times a stretch that is the same for all.
2. Title: the name (what stands before the first ": ") of one document and the description (what stands after it) of
   another, both neighbours of the drawn one.
3. Text: sentences of the section, none twice, half of them drawn from the NEAR sentences around the drawn document (ids
   ascend, so those are of the same family of packages), half from all of its section. As a sentence is drawn as often
   as it stands there, boilerplate stays as frequent as it was. When the length is reached, the last sentence is kept
   with the probability that makes the expected length right; every document has one.

So words keep the company they keep in the source, the distribution of lengths is its own stretched, and the share of
documents that a word stands in is its own times the stretch, down to the words that stand in one document: the corpus
grows, the vocabulary does not. ``term_statistics`` measures both sides. No word is made up.

The stretch makes a document hold ``terms`` distinct words (of title and text, as fullrank.text.words cuts them) on average;
Debian's package descriptions hold 45 (median 39), and terms = 0 leaves it at 1.

Documents are a stream from one seed: the first n of a larger corpus are the corpus of n. A twentieth of the source (by
hash of the id) is held out: no sentence and no title is taken from there but what other documents say too, and queries
come from nowhere else. Each document bears ``section`` and ``draw``, a uniform number in 0..1, to filter by.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness.report import data_folder
from fullrank.text.words import count_words, words

NEAR = 200
TERMS = 60
QUERY_WORDS = (3, 10, 30, 100, 300, 1000)
RANKS = (1, 10, 100, 1000, 10_000, 50_000)
_HELD_OUT = 20
_NEIGHBOURS = 30  # documents either side that give a title
_PILOT = 4000  # documents that the stretch is found on
_TRIES = 40  # sentences in a row that the document has already, before it is left as it is
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

Line = dict[str, Any]
"""A document as corpus.jsonl holds it."""


@dataclass(frozen=True)
class _Section:
    """What documents of one section are made of; ``first[i]`` is where document i's sentences begin."""

    name: str
    names: list[str]
    descriptions: list[str]
    lengths: list[int]
    sentences: list[str]
    sizes: list[int]
    first: list[int]


class Source:
    """A collection's documents, taken apart; ``held_out`` are the ones that queries come from."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.held_out: list[Line] = []
        self.kept: list[Line] = []
        self._sections: dict[str, _Section] = {}
        self._places: list[tuple[_Section, int]] = []
        for line in lines:
            if zlib.crc32(line["_id"].encode()) % _HELD_OUT == 0:
                self.held_out.append(line)
            else:
                self.kept.append(line)
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
        """The endless corpus of a seed, in ascending order of id."""
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
        """The stretch at which a document holds so many distinct words on average; 1 for terms = 0."""
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
    """Distinct sentences of ``target`` words in all, in expectation; one at least."""
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
    """The documents of a collection whose lines have title, text and section."""
    with gzip.open(folder / "corpus.jsonl.gz", "rb") as lines:
        return Source(map(orjson.loads, lines))


def write_corpus(
    source: Source, out: Path, documents: int, *, seed: int, stretch: float
) -> Iterator[int]:
    """Write ``out``/corpus.jsonl a thousand lines at a time; yields how many were just written."""
    out.mkdir(parents=True, exist_ok=True)
    beside, stream = out / "corpus.jsonl.part", source.documents(seed, stretch)
    with beside.open("wb") as file:
        for start in range(0, documents, 1000):
            lines = list(islice(stream, min(1000, documents - start)))
            file.writelines(orjson.dumps(line) + b"\n" for line in lines)
            yield len(lines)
    beside.replace(out / "corpus.jsonl")


def short_queries(source: Source, number: int, seed: int, *, tuning: bool = False) -> list[str]:
    """Half descriptions from titles, half the first three to eight words of a text; all held out.

    tuning  from one half of the held out documents, to tune with; else from the other, to measure with
    """
    draw = random.Random(seed)
    queries: list[str] = []
    for i, line in enumerate(_drawn(draw, source.held_out[int(tuning) :: 2], number)):
        title = line["title"].partition(": ")[2]
        text = " ".join(words(line["text"])[: draw.randint(3, 8)])
        queries.append((title if i % 2 == 0 else text) or line["title"])
    return queries


def run_queries(source: Source, number: int, length: int, seed: int) -> list[str]:
    """Runs of so many words of the held out texts, which are read on from one document to the next."""
    text = [word for line in source.held_out for word in words(line["text"])]
    draw = random.Random(seed)
    starts = [draw.randrange(max(1, len(text) - length)) for _ in range(number)]
    return [" ".join(text[start : start + length]) for start in starts]


def _drawn(draw: random.Random, lines: Sequence[Line], number: int) -> list[Line]:
    """Without repeats as far as there are so many."""
    rounds = [draw.sample(lines, len(lines)) for _ in range(-(-number // len(lines)))]
    return [line for round_ in rounds for line in round_][:number]


def term_statistics(lines: Iterable[Line]) -> dict[str, Any]:
    """Distinct words a document (mean and quantiles), and df / n of the words at RANKS, most frequent first."""
    frequency: Counter[str] = Counter()
    sizes = []
    for line in lines:
        found = count_words(_joined(line))
        sizes.append(len(found))
        frequency.update(found.keys())
    shares = np.sort(np.fromiter(frequency.values(), np.float64))[::-1] / len(sizes)
    return {
        "documents": len(sizes),
        "vocabulary": len(frequency),
        "terms_a_document": {
            "mean": round(float(np.mean(sizes)), 2),
            **{f"q{q:g}": float(np.percentile(sizes, q)) for q in (1, 25, 50, 75, 99)},
        },
        "df_over_n_at_rank": {
            str(rank): float(f"{shares[rank - 1]:.4g}") for rank in RANKS if rank <= len(shares)
        },
    }


def main() -> None:
    """Write a corpus and print its statistics beside the source's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of corpus.jsonl")
    parser.add_argument("--terms", type=float, default=TERMS, help="distinct words a document")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    source = read_source(data_folder() / "debian")
    stretch = source.stretch(given.terms, given.seed)
    for _ in write_corpus(source, given.out, given.documents, seed=given.seed, stretch=stretch):
        pass
    with (given.out / "corpus.jsonl").open("rb") as lines:
        made = term_statistics(map(orjson.loads, lines))
    found = {"stretch": stretch, "source": term_statistics(source.kept), "corpus": made}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
