"""Set judged documents aside, to measure how a model ranks documents that nobody clicked yet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64
from trainer.evaluation.evaluate import Judgement
from trainer.features.corpus import Corpus, Pairs
from trainer.training.validation import Validation, validation

SHARE = 0.1  # of the documents
_FEWEST_QUERIES = 20  # fewer say nothing


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A corpus without the judgements of some documents, and what to measure on it.

    Attributes:
        corpus: all documents and queries; training judges none of the documents set aside.
        warm: validation queries whose answers training may judge; None without a validation split.
        cold: training queries that led to a document set aside; None if there are too few.
    """

    corpus: Corpus
    warm: Validation | None
    cold: Validation | None


def is_held_out(document: str, share: float = SHARE) -> bool:
    """Return whether a document is set aside: a hash of its id decides, so every run agrees."""
    digest = hashlib.blake2b(document.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest) < share * 2**64


def hold_out(corpus: Corpus, limit: int) -> HoldOut:
    """Set a tenth of the documents aside.

    Args:
        corpus: the collection, counted.
        limit: most queries of each validation, evenly spread; 0 for all.
    """
    held = np.array([is_held_out(d.id) for d in corpus.collection.documents], np.bool_)
    pairs = corpus.pairs
    kept = {q: rows[~held[rows]] for q, rows in pairs.relevant.items()}
    kept = {q: rows for q, rows in kept.items() if len(rows)}
    cold = _spread(_cold_judgements(corpus, held), limit)
    reduced = Pairs(np.array(sorted(kept), np.int64), kept, pairs.source)
    return HoldOut(
        replace(corpus, pairs=reduced, cache={}),
        _warm(corpus, held, limit),
        _validation(corpus, "cold", cold) if len(cold) >= _FEWEST_QUERIES else None,
    )


def _cold_judgements(corpus: Corpus, held: npt.NDArray[np.bool_]) -> list[Judgement]:
    """Judge the training queries that led to a document set aside; their other answers are no candidates."""
    found = []
    for query in corpus.pairs.queries.tolist():
        rows = corpus.pairs.relevant[query]
        asked, others = rows[held[rows]], rows[~held[rows]]
        if len(asked):
            mate = corpus.mates[query]
            excluded = np.union1d(others, [mate]) if mate >= 0 else others
            ones = np.ones(len(asked), np.int64)
            found.append(Judgement(corpus.query_ids[query], asked, ones, excluded))
    return found


def _warm(corpus: Corpus, held: npt.NDArray[np.bool_], limit: int) -> Validation | None:
    """Return the validation queries without answers that are set aside."""
    valid = validation(corpus, 0)
    if valid is None:
        return None
    judgements = [j for j in valid.judgements if not held[j.relevant].any()]
    return _validation(corpus, valid.split, _spread(judgements, limit)) if judgements else None


def _spread(judgements: Sequence[Judgement], limit: int) -> list[Judgement]:
    if not limit or len(judgements) <= limit:
        return list(judgements)
    chosen: Int64 = np.linspace(0, len(judgements) - 1, limit).round().astype(np.int64)
    return [judgements[i] for i in chosen.tolist()]


def _validation(corpus: Corpus, split: str, judgements: list[Judgement]) -> Validation:
    place = {query: row for row, query in enumerate(corpus.query_ids)}
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)
