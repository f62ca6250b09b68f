"""Set judged documents aside, to measure how a model ranks documents that nobody clicked yet."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainer.evaluation.judgement import Judgement, shown_rows
from trainer.features.corpus import Corpus
from trainer.training.validation import Validation, validation, validation_of

_SHARE = 0.1
_FEWEST_QUERIES = 5  # fewer say nothing


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A corpus without the judgements of some documents, and what to measure on it.

    Attributes:
        corpus: all documents and queries; training judges none of the documents set aside.
        warm: queries that training does not see, whose answers it may judge; None if there are too few.
        cold: queries that led to a document set aside; None if there are too few.
    """

    corpus: Corpus
    warm: Validation | None
    cold: Validation | None

    @property
    def is_measurable(self) -> bool:
        """Whether training keeps judgements and validation has queries."""
        return bool(len(self.corpus.pairs.queries)) and not (
            self.warm is None and self.cold is None
        )


def falls_into(id: str, share: float, salt: bytes) -> bool:
    """Return whether an id falls into a share of all ids by a hash that never changes.

    Args:
        id: of a document or query.
        share: from 0 to 1.
        salt: at most 16 bytes; shares of two salts are independent.
    """
    digest = hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8, person=salt)
    return int.from_bytes(digest.digest()) < share * 2**64


def is_held_out(id: str) -> bool:
    """Return whether a document is set aside; every run agrees."""
    return falls_into(id, _SHARE, b"held-out")


def is_query_held_out(id: str) -> bool:
    """Return whether a query is set aside; every run agrees. Linked documents that are, may be no such queries."""
    return falls_into(id, _SHARE, b"held-out-queries")


def hold_out(corpus: Corpus, limit: int) -> HoldOut:
    """Set a tenth of the documents aside; without a validation split, also a tenth of the queries.

    Args:
        corpus: the collection, counted.
        limit: most queries of each validation, evenly spread; 0 for all.
    """
    held = np.array([is_held_out(id) for id in corpus.collection.document_ids], np.bool_)
    shown = _shown(corpus)
    cold = _judgements(corpus, corpus.pairs.relevant, held, shown)
    pairs = corpus.pairs.keep(lambda _, rows: ~held[rows])
    valid = validation(corpus, 0)
    if valid is not None:
        warm = [w for j in valid.judgements if (w := _without(j, held)) is not None]
    else:
        rows, ids = pairs.relevant.rows, corpus.query_ids
        aside = np.array([is_query_held_out(ids[row]) for row in rows.tolist()], np.bool_)
        asked_of = corpus.pairs.relevant.of_rows(rows[aside])
        warm = _judgements(corpus, asked_of, ~held, shown)
        asked = {*rows[aside].tolist()}
        pairs = pairs.keep(lambda q, rows: np.full(len(rows), q not in asked))
    return HoldOut(
        replace(corpus, pairs=pairs, cache={}),
        _validation(corpus, "valid", warm, limit),
        _validation(corpus, "cold", cold, limit),
    )


def _without(judgement: Judgement, held: npt.NDArray[np.bool_]) -> Judgement | None:
    """Take the documents set aside out of a judgement and its candidates; None if no answer is left."""
    aside = held[judgement.relevant]
    if aside.all():
        return None
    return replace(
        judgement,
        relevant=judgement.relevant[~aside],
        grades=judgement.grades[~aside],
        excluded=np.union1d(judgement.excluded, judgement.relevant[aside]),
    )


def _judgements(
    corpus: Corpus,
    relevant: Mapping[int, npt.NDArray[np.int64]],
    asked: npt.NDArray[np.bool_],
    shown: dict[int, npt.NDArray[np.int64]],
) -> list[Judgement]:
    """Judge queries by those of their answers that are asked for; the others are no candidates."""
    found = []
    for query, rows in relevant.items():
        answers, others = rows[asked[rows]], rows[~asked[rows]]
        if len(answers):
            mate = corpus.mates[query]
            excluded = np.union1d(others, [mate]) if mate >= 0 else others
            ones = np.ones(len(answers), np.int64)
            weight = 1.0
            if corpus.pairs.weights is not None:
                weight = float(corpus.pairs.weight_of(query, answers).sum())
            id = corpus.query_ids[query]
            found.append(Judgement(id, answers, ones, excluded, weight, shown.get(query)))
    return found


def _shown(corpus: Corpus) -> dict[int, npt.NDArray[np.int64]]:
    """Return what was shown for each training query whose judgements are clicks, by its row."""
    collection = corpus.collection
    if corpus.pairs.weights is None or "train" not in collection.splits:
        return {}
    rows, place = collection.document_ids.rows, collection.query_ids.rows
    found = {
        place[query]: shown_rows(grades, rows)
        for query, grades in collection.qrels("train").items()
    }
    return {query: shown for query, shown in found.items() if shown is not None}


def _validation(
    corpus: Corpus, split: str, judgements: list[Judgement], limit: int
) -> Validation | None:
    if len(judgements) < _FEWEST_QUERIES:
        return None
    return validation_of(corpus, split, judgements).spread(limit)
