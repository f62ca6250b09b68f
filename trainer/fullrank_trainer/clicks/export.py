"""Write votes as a collection.

    corpus.jsonl[.gz], schema.json   linked to those of the corpus
    queries.jsonl                    each query that led to a document
    qrels/<split>.tsv                train, valid, test, recent: 1 for what was clicked, 0 for what else was shown,
                                     -1 for what people passed over on the way to their click, at most four a query
    weights/<split>.tsv              "query-id corpus-id weight"
    people/<split>.tsv               "query-id corpus-id people": how many clicked

Weights of train are those of the rule. Other splits measure, by `mixture`: a click counts one over the probability that
its document was noticed, at most 10 times (`naive` counts clicks there, too).

One query in ten, by a hash of its text, is in valid and one in test. The newest fifth of the clicks is `recent`, of all
queries, and in no other split. It teaches nothing that the weights depend on. A split without judgements has no files.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from fullrank.errors import FullrankError, require_new
from fullrank.storage.encoding import Int64
from fullrank.storage.files import sync_folder, temporary_name
from fullrank_trainer.clicks.join import Votes
from fullrank_trainer.clicks.mixture import Clicked, Propensities, fit_mixture
from fullrank_trainer.clicks.weights import (
    DEFAULT,
    MIN_WEIGHT,
    Judged,
    Rule,
    clicks_of,
    has_only_clicks,
    weigh,
)
from fullrank_trainer.collection.corpus import find_corpus
from fullrank_trainer.collection.judgements import COLUMNS, PEOPLE, WEIGHTS
from fullrank_trainer.collection.pairs import falls_into, hashed
from fullrank_trainer.collection.schema import SCHEMA
from fullrank_trainer.lines import QRELS_HEADER

RECENT_SHARE = 0.2
MAX_PASSED_OVER = 4
"""Documents of a query that are graded -1."""
_SALT = b"clicked queries"
_VALID, _TEST = 0.1, 0.2

Bool = npt.NDArray[np.bool_]


def split_votes(
    votes: Votes,
    recent_share: float = RECENT_SHARE,
    *,
    after: float = -math.inf,
    final: bool = False,
) -> dict[str, Bool]:
    """Return which votes are in train, valid, test and recent.

    Args:
        recent_share: of the clicks, the newest ones, with their lists; 0: nothing is recent.
        after: only later votes are recent, in seconds since 1970: a model that learned from the others cannot be judged
            by them.
        final: train on test and recent, too, once they have judged what they should.
    """
    splits = np.array([split_of(text) for text in votes.queries] or ["train"])[votes.query]
    is_recent = np.zeros(len(votes), np.bool_)
    clicks = int(votes.clicked.sum())
    if count := int(recent_share * clicks):
        # Lists of one time are as old as their order says: a table may have no times.
        order = np.lexsort((votes.shown, votes.time))
        first = order[np.searchsorted(np.cumsum(votes.clicked[order]), clicks - count, "right")]
        at, shown = votes.time[first], votes.shown[first]
        is_recent = (votes.time > at) | ((votes.time == at) & (votes.shown >= shown))
        is_recent &= votes.time > after
    found: dict[str, Bool] = {
        name: (splits == name) & ~is_recent for name in ("train", "valid", "test")
    }
    if final:
        return {"train": splits != "valid", "valid": splits == "valid"}
    return {**found, "recent": is_recent}


def split_of(text: str) -> str:
    """Return the split of a normalised query, unless it was asked recently."""
    if falls_into(text, _VALID, _SALT):
        return "valid"
    return "test" if falls_into(text, _TEST, _SALT) else "train"


def write_collection(
    votes: Votes,
    propensities: Propensities,
    corpus: Path,
    folder: Path,
    *,
    rule: Rule = DEFAULT,
    recent_share: float = RECENT_SHARE,
    after: float = -math.inf,
    final: bool = False,
    **options: Any,
) -> dict[str, int]:
    """Write votes as a collection. The folder appears when it is complete.

    Args:
        corpus: folder whose corpus.jsonl has the documents; votes on others are left out when it is read.

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
    require_new(folder)
    file = find_corpus(corpus)
    splits = split_votes(votes, recent_share, after=after, final=final)
    judged = _weighed(votes, splits, propensities, rule, **options)
    if not len(judged["train"]):
        raise FullrankError(
            f"{folder}: no clicks to learn from: {int(votes.clicked.sum())} votes on documents that were"
            " shown; `fullrank events status` says why clicks were left out"
        )
    temporary = temporary_name(folder)
    try:
        temporary.mkdir(parents=True)
        _link(file, temporary / file.name)
        for place in (corpus, file.parent):
            if (place / SCHEMA).is_file() and not (temporary / SCHEMA).exists():
                _link(place / SCHEMA, temporary / SCHEMA)
        _write_queries(temporary / "queries.jsonl", votes, judged)
        for split, pairs in judged.items():
            if len(pairs):
                _write_split(temporary, split, pairs, _others(votes.take(splits[split]), pairs))
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {split: len(pairs) for split, pairs in judged.items()}


def _weighed(
    votes: Votes, splits: Mapping[str, Bool], propensities: Propensities, rule: Rule, **options: Any
) -> dict[str, Judged]:
    parts = {name: votes.take(rows) for name, rows in splits.items()}
    if rule == "naive" or has_only_clicks(votes):
        return {name: weigh(part, propensities, rule, **options) for name, part in parts.items()}
    is_known = np.any([rows for name, rows in splits.items() if name != "recent"], axis=0)
    known = votes.take(is_known & votes.is_listed)
    options |= {"mixture": fit_mixture(Clicked.of(*clicks_of(known, **options)), propensities)}
    options |= {"least": MIN_WEIGHT}
    return {
        name: weigh(part, propensities, rule, measures=name != "train", **options)
        for name, part in parts.items()
    }


def query_id(text: str) -> str:
    """Return the id of a normalised query; every export agrees."""
    return f"q{hashed(text, b''):016x}"


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source.resolve())
    except OSError:
        shutil.copyfile(source, target)


def _write_queries(path: Path, votes: Votes, judged: Mapping[str, Judged]) -> None:
    asked = np.unique(np.concatenate([pairs.query for pairs in judged.values()]))
    texts = (votes.queries[row] for row in asked.tolist())
    with path.open("wb") as file:
        file.writelines(orjson.dumps({"_id": query_id(t), "text": t}) + b"\n" for t in texts)


def _others(votes: Votes, pairs: Judged) -> tuple[Int64, Int64, Int64]:
    """Return (queries, documents, grades) of what was shown for the queries of some pairs and is in none of them."""
    width = max(1, len(votes.documents))
    key = votes.query * width + votes.document
    # Passed over: above a click of the same list.
    last = np.full(int(votes.shown.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, votes.shown[votes.clicked], votes.place[votes.clicked])
    above = ~votes.clicked & (votes.place < last[votes.shown])
    rest, at = np.unique(key, return_inverse=True)
    often = np.bincount(at, above, len(rest))
    is_other = np.isin(rest // width, pairs.query) & ~np.isin(
        rest, pairs.query * width + pairs.document
    )
    # A click that weighs too little is no judgement, but no negative either.
    often[np.isin(rest, key[votes.clicked])] = 0
    rest, often = rest[is_other], often[is_other]
    order = np.lexsort((-often, rest // width))
    query = rest[order] // width
    nth = np.arange(len(order)) - np.searchsorted(query, query)
    grades = np.zeros(len(order), np.int64)
    grades[order] = np.where((nth < MAX_PASSED_OVER) & (often[order] > 0), -1, 0)
    return rest // width, rest % width, grades


def _write_split(
    folder: Path, split: str, pairs: Judged, others: tuple[Int64, Int64, Int64]
) -> None:
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
        query, document, grades = others
        rows = zip(named(query, document), grades.tolist(), strict=True)
        file.writelines(f"{name}\t{grade}\n" for name, grade in rows)
    write(WEIGHTS, COLUMNS[WEIGHTS], pairs.weight.tolist(), "{:.6g}".format)
    write(PEOPLE, COLUMNS[PEOPLE], pairs.people.tolist(), str)
