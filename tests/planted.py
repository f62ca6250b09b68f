"""A planted collection: topics with synonyms, where the best answer is known.

Queries and documents of a topic are made of different words: a query says ``ask<t>x``, a document ``tell<t>y``. Half of
the queries also hold the topic's one shared word. Both sides hold decoys, shared words that say nothing of the topic
and are as rare as those that do. So

    word overlap  (W = I)   sees the shared word through the decoys, and nothing at all in the other half
    a diagonal    (W = D)   can learn that decoys do not count
    a latent part (UᵀV)     can learn which words mean the same

A query's relevant documents are all of its topic; to put those first, MAP 1, is the known best answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TOPICS = 6
DOCUMENTS = 6  # per topic
SYNONYMS = 4  # words of a topic per side
DECOYS = 24
SPLITS = {"train": 20, "valid": 5, "test": 6}  # queries per topic


def _pick(rng: np.random.Generator, words: Sequence[str], count: int) -> list[str]:
    return [words[i] for i in rng.choice(len(words), count, replace=False).tolist()]


def _document(rng: np.random.Generator, topic: int, number: int) -> dict[str, str]:
    decoys = [f"decoy{i}" for i in range(DECOYS)]
    tell = [f"tell{topic}{letter}" for letter in "abcdefgh"[:SYNONYMS]]
    title = [f"name{topic}n{number}", *_pick(rng, tell, 1)]
    text = [*_pick(rng, tell, 3), f"shared{topic}", *_pick(rng, decoys, 4)]
    rng.shuffle(text)
    return {"title": " ".join(title), "text": " ".join(text)}


def _query(rng: np.random.Generator, topic: int, with_shared: bool) -> str:
    decoys = [f"decoy{i}" for i in range(DECOYS)]
    ask = [f"ask{topic}{letter}" for letter in "abcdefgh"[:SYNONYMS]]
    found = [*_pick(rng, ask, 2), *_pick(rng, decoys, 3)]
    if with_shared:
        found.append(f"shared{topic}")
    rng.shuffle(found)
    return " ".join(found)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines, the folder made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def write_qrels(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """A split: each pair (query, document) relevant."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t1" for q, d in pairs)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def write_planted(folder: Path, *, seed: int = 1, splits: Sequence[str] = tuple(SPLITS)) -> Path:
    """Queries → documents. Documents ``d<topic>-<number>``, queries ``<split><topic>-<number>``."""
    rng = np.random.default_rng(seed)
    documents = [
        {"_id": f"d{topic}-{number}", **_document(rng, topic, number)}
        for topic in range(TOPICS)
        for number in range(DOCUMENTS)
    ]
    write_lines(folder / "corpus.jsonl", documents)
    queries = []
    for split, count in SPLITS.items():
        pairs = []
        for topic in range(TOPICS):
            for number in range(count):
                query = f"{split}{topic}-{number}"
                queries.append({"_id": query, "text": _query(rng, topic, number % 2 == 0)})
                pairs += [(query, f"d{topic}-{n}") for n in range(DOCUMENTS)]
        if split in splits:
            write_qrels(folder / "qrels" / f"{split}.tsv", pairs)
    write_lines(folder / "queries.jsonl", queries)
    return folder


def write_planted_links(folder: Path, *, seed: int = 1) -> Path:
    """Document → document: every document links to the others of its topic, one in five held out for validation.

    There are twice as many documents per topic; half of them are written in a query's words.
    """
    rng = np.random.default_rng(seed)
    lines, links = [], []
    for topic in range(TOPICS):
        ids = [f"d{topic}-{number}" for number in range(2 * DOCUMENTS)]
        for number, name in enumerate(ids):
            written = _document(rng, topic, number)
            if number % 2:
                written["text"] = _query(rng, topic, number % 4 == 1)
            lines.append({"_id": name, **written})
        links += [(a, b) for a in ids for b in ids if a != b]
    write_lines(folder / "corpus.jsonl", lines)
    write_qrels(folder / "qrels" / "train.tsv", [x for i, x in enumerate(links) if i % 5])
    write_qrels(folder / "qrels" / "valid.tsv", links[::5])
    return folder
