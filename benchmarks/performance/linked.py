"""A linked collection of any size: resampled documents that inherit the links of those they were drawn from.

    python -m benchmarks.performance.linked --documents 1000000 --out DIR [--terms 60] [--seed 1]

The documents are those of ``benchmarks.performance.resample``, drawn from debian. Call a document drawn from i a copy
of i: it shares words with the neighbourhood of i, not its text. If i links to j in a split of debian, then

- train: every copy of i links to one random copy of j;
- valid, test: one copy of i, the asked one, links to all copies of j. It links to all copies also for the links of
  train, so that no copy of a document that i is known to link to counts as a wrong answer.

ASKED sources of each of valid and test, drawn at random, have an asked copy.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import orjson

from benchmarks.harness.report import data_folder
from benchmarks.performance.resample import TERMS, Source, read_source
from fullrank.progress import Reporter

ASKED = 3000
SPLITS = ("train", "valid", "test")

Links = list[tuple[str, str]]
"""Pairs of ids: a document and one that it links to."""


def read_links(folder: Path) -> dict[str, Links]:
    """Return the links of each split of a collection whose queries are documents."""
    found: dict[str, Links] = {}
    for split in SPLITS:
        with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as lines:
            next(lines)  # the heading
            rows = (line.rstrip("\n").split("\t") for line in lines)
            found[split] = [(query, document) for query, document, _ in rows]
    return found


def inherit(
    links: Mapping[str, Links], copies: Mapping[str, Sequence[str]], *, asked: int, seed: int
) -> dict[str, Links]:
    """Give the links of sources to their copies, as the head of this module says.

    Args:
        links: of the sources, for each split.
        copies: ids of the documents drawn from a source.
        asked: sources of each of valid and test that have an asked copy, at most.
        seed: of the random choices.

    Returns:
        The links between copies, for each split.
    """
    draw = random.Random(seed)
    known = {
        split: [pair for pair in pairs if copies.get(pair[0]) and copies.get(pair[1])]
        for split, pairs in links.items()
    }
    found: dict[str, Links] = {"train": []}
    answers: dict[str, str] = {}  # source → its asked copy
    for split in ("valid", "test"):
        sources = sorted({source for source, _ in known[split]})
        chosen = set(draw.sample(sources, min(asked, len(sources))))
        answers |= {source: copies[source][0] for source in chosen}
        found[split] = [
            (copies[source][0], copy)
            for source, target in known[split]
            if source in chosen
            for copy in copies[target]
        ]
    for source, target in known["train"]:
        for copy in copies[source]:
            if copy == answers.get(source):
                found["train"] += [(copy, other) for other in copies[target]]
            else:
                found["train"].append((copy, draw.choice(copies[target])))
    return found


def write_collection(
    source: Source,
    links: Mapping[str, Links],
    out: Path,
    documents: int,
    *,
    seed: int,
    stretch: float,
) -> Iterator[int]:
    """Write a collection to ``out``; yield the number of documents of each step."""
    (out / "qrels").mkdir(parents=True)
    copies: dict[str, list[str]] = defaultdict(list)
    stream = source.draws(seed, stretch)
    with (out / "corpus.jsonl").open("wb") as file:
        for start in range(0, documents, 1000):
            drawn = list(islice(stream, min(1000, documents - start)))
            for place, line in drawn:
                copies[source.kept[place]["_id"]].append(line["_id"])
                file.write(orjson.dumps(line) + b"\n")
            yield len(drawn)
    for split, pairs in inherit(links, copies, asked=ASKED, seed=seed).items():
        with (out / "qrels" / f"{split}.tsv").open("w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"{query}\t{document}\t1\n" for query, document in pairs)


def main() -> None:
    """Write a collection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--terms", type=float, default=TERMS, help="distinct words a document")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    source = read_source(data_folder() / "debian")
    links = read_links(data_folder() / "debian")
    stretch = source.stretch(given.terms, given.seed)
    with Reporter() as report, report.stage("writing", total=given.documents) as stage:
        for number in write_collection(
            source, links, given.out, given.documents, seed=given.seed, stretch=stretch
        ):
            stage.advance(number)


if __name__ == "__main__":
    main()
