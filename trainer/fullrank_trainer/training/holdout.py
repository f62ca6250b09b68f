"""Set judgements aside, to measure what people will do next.

    known   clicks on queries that training has, whose other clicks stay
    new     queries that training has not
    cold    documents that training has not judged

Clicks (judgements with weights) are measured one by one: a click counts 1 / rank, and the other answers of its query
stay candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64
from fullrank_trainer.evaluation.evaluate import Judgement, shown_rows
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.training.validation import Validation, validation, validation_of

_SHARE = 0.1
_FEWEST_QUERIES = 5  # fewer say nothing
_FEWEST_CLICKED = 50  # queries and documents; fewer would drop BM25 or memory by chance
_MOST_CLICKS = 4_000  # that a column measures; more move nothing


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A corpus without the judgements of some documents, and what to measure on it.

    Attributes:
        corpus: all documents and queries; training judges none of the documents set aside.
        warm: queries that training does not see, whose answers it may judge; None if there are too few.
        cold: queries that led to a document set aside; None if there are too few.
        known: clicks on queries that training sees; None if there are too few, or judgements are no clicks.
        repeated: estimate of the share of later clicks whose queries training sees.
        fresh: estimate of the share whose documents training has not judged; 1 if judgements are no clicks.
    """

    corpus: Corpus
    warm: Validation | None
    cold: Validation | None
    known: Validation | None = None
    repeated: float = 0.0
    fresh: float = 1.0

    @property
    def is_measurable(self) -> bool:
        """Whether training keeps judgements and validation has queries; of clicks, enough to weigh parts by."""
        columns = [column for column in (self.warm, self.cold, self.known) if column is not None]
        least = 1 if self.corpus.pairs.weights is None else _FEWEST_CLICKED
        measured = sum(len(column.judgements) for column in columns)
        return bool(len(self.corpus.pairs.queries)) and measured >= least


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
    are_clicks = corpus.pairs.weights is not None
    known: list[Judgement] = []
    if "valid" in corpus.collection.splits:
        place = corpus.query_ids.rows
        asked = {*pairs.queries.tolist()} if are_clicks else set()
        valid = validation(corpus, 0)
        assert valid is not None
        warm = [w for j in valid.judgements if (w := _without(j, held)) is not None]
        known = [j for j in warm if place[j.query] in asked]
        warm = [j for j in warm if place[j.query] not in asked]
    else:
        rows, ids = pairs.relevant.rows, corpus.query_ids
        aside = np.array([is_query_held_out(ids[row]) for row in rows.tolist()], np.bool_)
        asked_of = corpus.pairs.relevant.of_rows(rows[aside])
        warm = _judgements(corpus, asked_of, ~held, shown)
        asked = {*rows[aside].tolist()}
        pairs = pairs.keep(lambda q, rows: np.full(len(rows), q not in asked))
    if are_clicks and not known:
        pairs, later = _thinned(pairs)
        known = _judgements(replace(corpus, pairs=later), later.relevant, ~held, shown)
    if are_clicks:
        # People will ask new queries and click cold documents rarely, so none of them counts more than another.
        warm, cold = (_one_by_one([_of_weight_one(j) for j in part]) for part in (warm, cold))
        known = _one_by_one(known)
    return HoldOut(
        replace(corpus, pairs=pairs, cache={}),
        _validation(corpus, "new", warm, limit),
        _validation(corpus, "cold", cold, limit),
        _validation(corpus, "known", known, limit),
        _repeated(corpus.pairs, corpus.pairs.relevant.owners) if known else 0.0,
        1 - _repeated(corpus.pairs, corpus.pairs.relevant.entries) if are_clicks else 1.0,
    )


def _repeated(pairs: Pairs, rows: Int64) -> float:
    """Estimate which share of later clicks repeats a row (Good 1953): 1 − rows of one click / clicks."""
    assert pairs.weights is not None
    clicks = np.bincount(rows, pairs.weights.entries)
    return 1 - float(np.count_nonzero((clicks > 0) & (clicks < 1.5))) / max(
        1.0, float(clicks.sum())
    )


def _thinned(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Set one click in ten aside, but never all of a query; return what is left and what is set aside."""
    assert pairs.weights is not None
    weights = pairs.weights.entries
    taken = np.random.default_rng(0).binomial(weights.astype(np.int64), _SHARE).astype(np.float32)
    left = weights - taken
    owners = pairs.relevant.owners
    rest = np.bincount(owners, left, owners.max(initial=0) + 1)
    taken[rest[owners] <= 0] = 0
    left = weights - taken
    later = replace(pairs, weights=pairs.weights.with_entries(taken))
    pairs = replace(pairs, weights=pairs.weights.with_entries(left))
    return pairs.where(left > 0), later.where(taken > 0)


def _of_weight_one(judgement: Judgement) -> Judgement:
    return replace(judgement, clicks=judgement.weights / judgement.weights.sum())


def _one_by_one(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Split judgements into their clicks; of very many, an even sample."""
    found = [
        replace(j, relevant=j.relevant[i : i + 1], grades=j.grades[i : i + 1], weight=float(weight))
        for j in judgements
        for i, weight in enumerate(j.weights)
    ]
    total = sum(j.weight for j in found)
    if total <= _MOST_CLICKS:
        return found
    ends = np.cumsum([j.weight for j in found]) * (_MOST_CLICKS / total)
    counts = np.diff(np.floor(ends), prepend=0.0)
    return [replace(j, weight=float(n)) for j, n in zip(found, counts, strict=True) if n]


def _without(judgement: Judgement, held: npt.NDArray[np.bool_]) -> Judgement | None:
    """Take the documents set aside out of a judgement and its candidates; None if no answer is left."""
    aside = held[judgement.relevant]
    if aside.all():
        return None
    return replace(
        judgement,
        relevant=judgement.relevant[~aside],
        grades=judgement.grades[~aside],
        clicks=None if judgement.clicks is None else judgement.clicks[~aside],
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
            weight, clicks = 1.0, None
            if corpus.pairs.weights is not None:
                clicks = corpus.pairs.weight_of(query, answers).astype(np.float64)
                weight = float(clicks.sum())
            id = corpus.query_ids[query]
            found.append(Judgement(id, answers, ones, excluded, weight, shown.get(query), clicks))
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
    if corpus.pairs.weights is not None:
        limit = _MOST_CLICKS if limit else 0
    return validation_of(corpus, split, judgements).spread(limit)
