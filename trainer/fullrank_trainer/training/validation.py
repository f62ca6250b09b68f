"""Measure a model on the validation split during and after training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fullrank.measures import RANKING_MEASURES, Estimate, estimates
from fullrank.retrieval import Retriever
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Int64
from fullrank_trainer.collection import Collection
from fullrank_trainer.collection.pairs import Pairs, falls_into, hashed
from fullrank_trainer.evaluation.evaluate import (
    Judgement,
    evenly_chosen,
    evenly_spread,
    judge,
    measure_rankings,
    measures_of,
    rank_in_batches,
    relative_weights,
    shown_rows,
)
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.fields import HEAVY
from fullrank_trainer.training.fitted import FittedModel

_ALL = slice(None)
_DEPTH = 100  # documents per query that the MAP of early stopping reads
CALIBRATING = 200
"""Queries that choose the evidence that a document needs to be found; training never learns them."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Queries of the validation split.

    Attributes:
        texts: of typed queries, which have no rows; None: the rows are those of the collection.
    """

    split: str
    rows: Int64
    judgements: list[Judgement]
    texts: list[str] | None = None

    def spread(self, limit: int) -> Validation:
        """Return at most ``limit`` of the queries, evenly spread; 0 keeps all."""
        chosen = evenly_spread(len(self.judgements), limit)
        texts = None if self.texts is None else evenly_chosen(self.texts, limit)
        judgements = evenly_chosen(self.judgements, limit)
        return Validation(self.split, self.rows[chosen], judgements, texts)

    def part(self, place: slice, split: str) -> Validation:
        """Return neighbouring queries as those of another split."""
        texts = None if self.texts is None else self.texts[place]
        return Validation(split, self.rows[place], self.judgements[place], texts)

    def encode(self, fitted: FittedModel, chosen: slice = _ALL) -> Encoded:
        if self.texts is None:
            return fitted.encode(self.rows[chosen])
        return fitted.model.encode_queries(self.texts[chosen])

    def map_of(self, blocks: Iterable[Encoded], queries: Encoded) -> float:
        """Return the MAP of early stopping, from the blocks of an encoded corpus."""
        return float(self.measure_blocks(blocks, queries, depth=_DEPTH)["map"].mean)

    def measure_blocks(
        self, blocks: Iterable[Encoded], queries: Encoded, *, depth: int
    ) -> dict[str, Estimate]:
        """Return means and standard errors over the queries; the rank loss is left out."""
        ranked = _rank_blocks(blocks, queries, self.judgements, depth)
        values = {name: np.zeros(len(ranked)) for name in RANKING_MEASURES}
        for i, (rows, judgement) in enumerate(zip(ranked, self.judgements, strict=True)):
            for name, value in measures_of(rows, judgement).items():
                values[name][i] = value
        return estimates(values, relative_weights(self.judgements))

    def measure_fitted(self, fitted: FittedModel) -> dict[str, Estimate]:
        """Return all measures of a fitted model, ranked by the code that serves."""
        documents = fitted.documents
        retriever = Retriever(documents, fitted.model.scorer(documents))
        queries, count = self.encode(fitted), len(documents)
        values = measure_rankings(retriever, queries, self.judgements, documents=count)
        return estimates(values, relative_weights(self.judgements))


def _rank_blocks(
    blocks: Iterable[Encoded], queries: Encoded, judgements: Sequence[Judgement], depth: int
) -> list[Int64]:
    """Return the rows of the best documents of each query, best first, ties by row."""
    rows = [np.zeros(0, np.int64) for _ in judgements]
    scores = [np.zeros(0) for _ in judgements]
    first = 0
    for documents in blocks:
        retriever, count = Retriever(documents), len(documents)
        batches = rank_in_batches(retriever, queries, judgements, count, depth, first)
        for i, (found, _, _) in enumerate(batches):
            both = np.append(rows[i], first + found.rows), np.append(scores[i], found.scores)
            best = np.lexsort((both[0], -both[1]))[:depth]
            rows[i], scores[i] = both[0][best], both[1][best]
        first += count
    return rows


def validation(corpus: Corpus, limit: int, split: str = "valid") -> Validation | None:
    """Choose validation queries, at most ``limit`` (0: all); None if the collection lacks the split.

    Links of the training split are no candidates; documents clicked in training are.
    """
    collection: Collection = corpus.collection
    if split not in collection.splits:
        return None
    if ("judged", split) not in corpus.cache:
        are_clicks = split in collection.weights
        exclude = [name for name in ("train",) if name in collection.splits and not are_clicks]
        judgements, _ = judge(collection, split, exclude)
        corpus.cache["judged", split] = validation_of(corpus, split, judgements)
    found: Validation = corpus.cache["judged", split]
    return found.spread(limit)


def validation_of(corpus: Corpus, split: str, judgements: list[Judgement]) -> Validation:
    place = corpus.query_ids.rows
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)


# Typed queries of a collection whose documents are the queries: short ones, made of the documents.
#
#     title        the title of a document
#     words        half of the words of a title, neighbouring ones
#     heading      a Markdown heading of its text
#     description  its first words, or those of a field "description" or "summary"
#     span         2 to 5 neighbouring words of it
#     keywords     2 to 5 words of it, each of four letters or more if there are such
#     anchor       the text of links to it that training does not read (``fullrank_trainer.collection.corpus``)
#
# The document is the answer; of anchors, all documents that they lead to. Hashes choose, so every run asks the same.


TYPED = "typed"
_MOST = 3000  # queries
_FEWEST = 5  # fewer say nothing
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*\w.*)$", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?]\s|\n")
_DESCRIPTIONS = ("description", "summary")
# What `fullrank import` writes on every passage of a page: it tells none of them from the others.
_SHARED = frozenset({"page", "page_context"})
_DESCRIBING_WORDS = 8
_SPAN_WORDS = (2, 5)
_LONG = 4  # letters; shorter words rarely say what a text is about


def typed_queries(corpus: Corpus) -> tuple[Validation | None, list[str]]:
    """Make typed queries of a counted collection; None if there are too few. Also return the kind of each, in order."""
    collection = corpus.collection
    rows = collection.document_ids.rows
    anchors = [
        (text, [rows[id] for id in ids if id in rows]) for text, ids in collection.anchors.items()
    ]
    found = [("anchor", text, answers) for text, answers in evenly_chosen(anchors, _MOST // 2)]
    titled: dict[str, list[int]] = {}
    titles = [name for name in corpus.sources if name.lower() in HEAVY]
    for row, document in enumerate(collection.documents):
        titled.setdefault(_same(field_text(document.fields, titles)), []).append(row)
    for row in evenly_spread(len(rows), _MOST - len(found)).tolist():
        document = collection.documents[row]
        kinds = [*_made(document.fields, titles, corpus.sources, document.id)]
        if kinds:
            kind, text = kinds[_number(document.id, "kind") % len(kinds)]
            found.append((kind, text, titled.get(_same(text), [row])))
    found = [(kind, text, rows) for kind, text, rows in found if text and rows]
    found.sort(key=lambda query: query[0])
    if len(found) < _FEWEST:
        return None, []
    nothing = np.zeros(0, np.int64)
    judgements = [
        Judgement(text, np.unique(answers), np.ones(len({*answers}), np.int64), nothing)
        for _, text, answers in found
    ]
    texts = [text for _, text, _ in found]
    valid = Validation(TYPED, np.zeros(len(found), np.int64), judgements, texts)
    return valid, [kind for kind, _, _ in found]


def _made(
    fields: Mapping[str, object], titles: Sequence[str], sources: Sequence[str], id: str
) -> Iterator[tuple[str, str]]:
    """Yield a query of each kind that a document allows."""
    words = field_text(fields, titles).split()
    if words:
        yield "title", " ".join(words)
    if len(words) > 1:
        yield "words", _span(words, (len(words) + 1) // 2, id)
    text = field_text(fields, [name for name in sources if name not in {*titles, *_SHARED}])
    headings = _HEADING.findall(text)
    if headings:
        yield "heading", headings[_number(id, "heading") % len(headings)].strip()
    described = field_text(fields, _DESCRIPTIONS) or _SENTENCE.split(text.strip(), maxsplit=1)[0]
    if described := " ".join(described.split()[:_DESCRIBING_WORDS]):
        yield "description", described
    least, most = _SPAN_WORDS
    count = least + _number(id, "length") % (most - least + 1)
    words = text.split()
    if len(words) >= least:
        yield "span", _span(words, count, id)
    long = [word for word in words if len(word) >= _LONG] or words
    if len(long) >= least:
        some = (long[_number(id, f"keyword {i}") % len(long)] for i in range(count))
        yield "keywords", " ".join(dict.fromkeys(some))


def _span(words: Sequence[str], count: int, id: str) -> str:
    first = _number(id, "first") % max(1, len(words) - count + 1)
    return " ".join(words[first : first + count])


def _number(id: str, use: str) -> int:
    return hashed(f"{use}\0{id}", b"typed")


def _same(text: str) -> str:
    return " ".join(text.casefold().split())


# Set judgements aside, to measure what people will do next.
#
#     known   clicks on queries that training has, whose other clicks stay
#     new     queries that training has not
#     cold    documents that training has not judged
#
# Clicks (judgements with weights) are measured one by one: a click counts 1 / rank, and the other answers of its query
# stay candidates.


_SHARE = 0.1
_FEWEST_QUERIES = 5  # fewer say nothing
_FEWEST_CLICKED = 50  # queries and documents; fewer would drop BM25 or memory by chance
_MOST_CLICKS = 4_000  # that a column measures; more move nothing


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A corpus without the judgements of some documents, and what to measure on it.

    Attributes:
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


def is_held_out(id: str) -> bool:
    """Return whether a document is set aside; every run agrees."""
    return falls_into(id, _SHARE, b"held-out")


def is_query_held_out(id: str) -> bool:
    """Return whether a query is set aside; every run agrees.

    The hash differs from that of documents: where documents are the queries, one may be set aside as either.
    """
    return falls_into(id, _SHARE, b"held-out-queries")


def hold_out(corpus: Corpus, limit: int) -> HoldOut:
    """Set a tenth of the documents aside; without a validation split, also a tenth of the queries.

    Each validation has at most ``limit`` queries, evenly spread; 0: all.
    """
    held = np.array([is_held_out(id) for id in corpus.collection.document_ids], np.bool_)
    shown = _shown(corpus)
    cold = _judgements(corpus, corpus.pairs, held, shown)
    pairs = corpus.pairs.where(~held[corpus.pairs.entries])
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
        ids = [corpus.query_ids[row] for row in pairs.rows.tolist()]
        aside = pairs.rows[np.array([*map(is_query_held_out, ids)], np.bool_)]
        warm = _judgements(corpus, corpus.pairs.of_queries(aside), ~held, shown)
        pairs = pairs.where(~np.isin(pairs.owners, aside))
    if are_clicks and not known:
        pairs, later = _thinned(pairs)
        known = _judgements(corpus, later, ~held, shown)
    if are_clicks:
        # People will ask new queries and click cold documents rarely, so none of them counts more than another.
        warm, cold = (
            _one_by_one([replace(j, clicks=j.weights / j.weights.sum()) for j in part])
            for part in (warm, cold)
        )
        known = _one_by_one(known)
    return HoldOut(
        replace(corpus, pairs=pairs, cache={}),
        _validation(corpus, "new", warm, limit),
        _validation(corpus, "cold", cold, limit),
        _validation(corpus, "known", known, limit),
        _repeated(corpus.pairs, corpus.pairs.owners) if known else 0.0,
        1 - _repeated(corpus.pairs, corpus.pairs.entries) if are_clicks else 1.0,
    )


def _repeated(pairs: Pairs, rows: Int64) -> float:
    """Estimate which share of later clicks repeats a row (Good 1953): 1 − rows of one click / clicks."""
    assert pairs.weights is not None
    clicks = np.bincount(rows, pairs.weights)
    return 1 - float(np.count_nonzero((clicks > 0) & (clicks < 1.5))) / max(
        1.0, float(clicks.sum())
    )


def _thinned(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Set one click in ten aside, but never all of a query; return what is left and what is set aside."""
    assert pairs.weights is not None
    weights = pairs.weights
    taken = np.random.default_rng(0).binomial(weights.astype(np.int64), _SHARE).astype(np.float32)
    left = weights - taken
    owners = pairs.owners
    rest = np.bincount(owners, left, owners.max(initial=0) + 1)
    taken[rest[owners] <= 0] = 0
    left = weights - taken
    later = replace(pairs, weights=taken)
    pairs = replace(pairs, weights=left)
    return pairs.where(left > 0), later.where(taken > 0)


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
    pairs: Pairs,
    asked: npt.NDArray[np.bool_],
    shown: dict[int, npt.NDArray[np.int64]],
) -> list[Judgement]:
    """Judge queries by those of their answers that are asked for; the others are no candidates."""
    found = []
    for query, rows in pairs.items():
        answers, others = rows[asked[rows]], rows[~asked[rows]]
        if len(answers):
            mate = corpus.mates[query]
            excluded = np.union1d(others, [mate]) if mate >= 0 else others
            ones = np.ones(len(answers), np.int64)
            weight, clicks = 1.0, None
            if pairs.weights is not None:
                clicks = pairs.weight_of(query, answers).astype(np.float64)
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
