"""Write votes as a collection.

    corpus.jsonl[.gz], schema.json   linked to those of the corpus
    queries.jsonl                    each query that led to a document
    qrels/<split>.tsv                train, valid, test, recent; 1 for what was clicked, 0 for what else was shown
    weights/<split>.tsv              "query-id corpus-id weight"
    people/<split>.tsv               "query-id corpus-id people": how many clicked

One query in ten, by a hash of its text, is in valid and one in test. The newest fifth of the time is `recent`, for all
queries, and in no other split. A split without judgements has no files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from fullrank.encoding import Int64
from fullrank.errors import FullrankError
from fullrank.storage.files import sync_folder
from trainer.clicks.join import Votes
from trainer.clicks.propensity import Propensities
from trainer.clicks.weights import Judged, Rule, weigh
from trainer.collection.documents import find_corpus
from trainer.collection.judgements import QRELS_HEADER
from trainer.collection.schema import SCHEMA
from trainer.collection.weights import COLUMNS, PEOPLE, WEIGHTS
from trainer.training.holdout import falls_into

RECENT_SHARE = 0.2
_SALT = b"clicked queries"
_VALID, _TEST = 0.1, 0.2

Bool = npt.NDArray[np.bool_]
Pairs = tuple[Int64, Int64]
"""Rows of queries and of documents."""


def split_votes(votes: Votes, recent_share: float = RECENT_SHARE) -> dict[str, Bool]:
    """Return which votes are in train, valid, test and recent.

    Args:
        votes: to split.
        recent_share: of the time between the first and the last vote, at its end; 0: nothing is recent.
    """
    splits = np.array([_split_of(text) for text in votes.queries] or ["train"])[votes.query]
    is_recent = np.zeros(len(votes), np.bool_)
    if recent_share and len(votes):
        first, last = votes.time.min(), votes.time.max()
        is_recent = votes.time > last - recent_share * (last - first)
    found: dict[str, Bool] = {
        name: (splits == name) & ~is_recent for name in ("train", "valid", "test")
    }
    return {**found, "recent": is_recent}


def _split_of(text: str) -> str:
    if falls_into(text, _VALID, _SALT):
        return "valid"
    return "test" if falls_into(text, _TEST, _SALT) else "train"


def write_collection(
    votes: Votes,
    propensities: Propensities,
    corpus: Path,
    folder: Path,
    *,
    rule: Rule = "coec",
    recent_share: float = RECENT_SHARE,
    **options: Any,
) -> dict[str, int]:
    """Write votes as a collection. The folder appears when it is complete.

    Args:
        votes: of all splits.
        propensities: p_k.
        corpus: folder whose corpus.jsonl has the documents; votes on others are left out when it is read.
        folder: to write; it must not exist.
        rule: how clicks become weights.
        recent_share: see split_votes.
        options: of ``weigh``.

    Returns:
        The number of judgements in each split.

    Raises:
        FullrankError: the folder exists, or no vote is in train.
        CollectionError: there is no corpus.

    Example:
        >>> votes = join(log.lists(), log.events())
        >>> write_collection(votes, fit_propensities(votes.coins), Path("shop"), Path("clicks"))
        {'train': 8120, 'valid': 1010, 'test': 998, 'recent': 2511}
    """
    if folder.exists():
        raise FullrankError(f"{folder}: exists already; choose another folder or delete it")
    file = find_corpus(corpus)
    parts = {name: votes.take(rows) for name, rows in split_votes(votes, recent_share).items()}
    judged = {name: weigh(part, propensities, rule, **options) for name, part in parts.items()}
    if not len(judged["train"]):
        raise FullrankError(
            f"{folder}: no clicks to learn from: {int(votes.clicked.sum())} votes on documents that were"
            " shown; `fullrank events status` says why clicks were left out"
        )
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        _link(file, temporary / file.name)
        for place in (corpus, file.parent):
            if (place / SCHEMA).is_file() and not (temporary / SCHEMA).exists():
                _link(place / SCHEMA, temporary / SCHEMA)
        _write_queries(temporary / "queries.jsonl", votes, judged)
        for split, pairs in judged.items():
            if len(pairs):
                _write_split(temporary, split, pairs, _only_shown(parts[split], pairs))
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {split: len(pairs) for split, pairs in judged.items()}


def query_id(text: str) -> str:
    """Return the id of a normalised query; every export agrees."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"q{digest.hexdigest()}"


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it where that is not possible: to another disk."""
    try:
        target.hardlink_to(source.resolve())
    except OSError:
        shutil.copyfile(source, target)


def _write_queries(path: Path, votes: Votes, judged: Mapping[str, Judged]) -> None:
    asked = np.unique(np.concatenate([pairs.query for pairs in judged.values()]))
    texts = (votes.queries[row] for row in asked.tolist())
    with path.open("wb") as file:
        file.writelines(orjson.dumps({"_id": query_id(t), "text": t}) + b"\n" for t in texts)


def _only_shown(votes: Votes, pairs: Judged) -> Pairs:
    """Return the documents that were shown for the queries of some pairs and are in none of them."""
    width = max(1, len(votes.documents))
    shown = np.unique(votes.query * width + votes.document)
    shown = shown[np.isin(shown // width, pairs.query)]
    rest = np.setdiff1d(shown, pairs.query * width + pairs.document, assume_unique=True)
    return np.divmod(rest, width)


def _write_split(folder: Path, split: str, pairs: Judged, only_shown: Pairs) -> None:
    ids = {row: query_id(pairs.queries[row]) for row in np.unique(pairs.query).tolist()}

    def named(query: Int64, document: Int64) -> list[str]:
        rows = zip(query.tolist(), document.tolist(), strict=True)
        return [f"{ids[q]}\t{pairs.documents[d]}" for q, d in rows]

    names = named(pairs.query, pairs.document)

    def write(place: str, column: str, values: Iterable[Any], form: Callable[[Any], str]) -> None:
        path = folder / place / f"{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            file.write("\t".join((*QRELS_HEADER[:2], column)) + "\n")
            for name, value in zip(names, values, strict=True):
                file.write(f"{name}\t{form(value)}\n")

    write("qrels", QRELS_HEADER[2], [1] * len(names), str)
    with (folder / "qrels" / f"{split}.tsv").open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\t0\n" for name in named(*only_shown))
    write(WEIGHTS, COLUMNS[WEIGHTS], pairs.weight.tolist(), "{:.6g}".format)
    write(PEOPLE, COLUMNS[PEOPLE], pairs.people.tolist(), str)
