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
from pathlib import Path

from benchmarks.harness.derive import Link, links_of, write_qrels
from benchmarks.harness.report import data_folder
from benchmarks.performance.resample import TERMS, Line, Source, read_source, write_lines
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection

ASKED = 3000
SPLITS = ("train", "valid", "test")


def inherit(
    links: Mapping[str, Sequence[Link]],
    copies: Mapping[str, Sequence[str]],
    *,
    asked: int,
    seed: int,
) -> dict[str, list[Link]]:
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
    found: dict[str, list[Link]] = {"train": []}
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
    links: Mapping[str, Sequence[Link]],
    out: Path,
    documents: int,
    *,
    seed: int,
    stretch: float,
) -> Iterator[int]:
    """Write a collection to ``out``; yield the number of documents of each step."""
    copies: dict[str, list[str]] = defaultdict(list)

    def lines() -> Iterator[Line]:
        for place, line in source.draws(seed, stretch):
            copies[source.kept[place]["_id"]].append(line["_id"])
            yield line

    yield from write_lines(lines(), out, documents)
    write_qrels(out, inherit(links, copies, asked=ASKED, seed=seed))


def main() -> None:
    """Write a collection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--terms", type=float, default=TERMS, help="distinct words a document")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    source = read_source(data_folder() / "debian")
    collection = read_collection(data_folder() / "debian")
    links = {split: links_of(collection, [split]) for split in SPLITS}
    stretch = source.stretch(given.terms, given.seed)
    with Reporter() as report, report.stage("writing", total=given.documents) as stage:
        for number in write_collection(
            source, links, given.out, given.documents, seed=given.seed, stretch=stretch
        ):
            stage.advance(number)


if __name__ == "__main__":
    main()
