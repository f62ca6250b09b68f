"""Documents that are searched as one collection: the parts, one search over them, and its hits."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np

from fullrank.filters.columns import Columns
from fullrank.filters.columns.table import aligned
from fullrank.filters.facets import Facet
from fullrank.kernels.records import copy_documents
from fullrank.models.clicks import ClickParts, ClickShare
from fullrank.models.contract import Model
from fullrank.retrieval import Floor, Mask, Required
from fullrank.retrieval.candidates import COUNTED
from fullrank.retrieval.ranking import Choice
from fullrank.retrieval.scoring import TermShare, WordScore
from fullrank.search.highlight import Highlight, Snippet, highlights
from fullrank.search.part import Part, Query
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.features import FirstStage
from fullrank.search.rerank.stage import DEPTH, SecondScore, SecondStage
from fullrank.storage.encoding import Encoded, Float32, Int32, Int64, Rows
from fullrank.storage.records import Documents

# Lets ``copy_documents`` keep the numbers of features.
_EVERY_FEATURE = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class Selection:
    """Documents of several parts in a new order: the part of each, int32, and its row there, int64."""

    number: Int32
    row: Int64

    @staticmethod
    def of(pairs: Sequence[tuple[int, int]]) -> Selection:
        number, row = np.array(pairs, np.int64).reshape(-1, 2).T
        return Selection(number.astype(np.int32), np.ascontiguousarray(row))

    def __len__(self) -> int:
        return len(self.row)

    def places(self, number: int) -> Int64:
        """Return the places of the documents of one part, int64 ascending."""
        return np.flatnonzero(self.number == number)


def gather(
    parts: Sequence[Documents], selected: Selection, width: int, targets: Sequence[Int32 | None]
) -> Encoded:
    """Copy encoded documents of several parts, in the order of the selection, with `width` sparse features.

    Args:
        targets: For each part the new numbers of its features, int32 ascending; None if they stay.
    """
    count = len(selected)
    sizes, bias = np.zeros(count, np.int64), np.empty(count, np.float32)
    places = [selected.places(i) for i in range(len(parts))]
    for part, here in zip(parts, places, strict=True):
        rows = selected.row[here]
        sizes[here] = part.indptr[rows + 1] - part.indptr[rows]
        bias[here] = part.bias[rows]
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    dense = np.empty((count, parts[0].n_dense), np.float32)
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for part, here, target in zip(parts, places, targets, strict=True):
        if len(here):
            found, rows = part.fetch(selected.row[here])
            copy_documents(
                found.matrix, rows, here, _EVERY_FEATURE if target is None else target,
                (dense, indptr, indices, values),
            )  # fmt: skip
    return Encoded(dense, Rows(indptr, indices, values, width), bias)


def gather_facts(parts: Sequence[Part], selected: Selection) -> DocumentFacts | None:
    """Copy facts about documents in the order of the selection; None if a part has no facts."""
    pieces, order = [], np.empty(len(selected), np.int64)
    done = 0
    for i, part in enumerate(parts):
        here = selected.places(i)
        if len(here):
            if part.facts is None:
                return None
            order[here] = np.arange(done, done + len(here))
            pieces.append(part.facts.take(selected.row[here]))
            done += len(here)
    if not pieces:
        return None
    return pieces[0] if len(pieces) == 1 else DocumentFacts.concatenate(pieces).take(order)


def gather_in_model_features(parts: Sequence[Part], selected: Selection, width: int) -> Encoded:
    """Copy encoded documents of several parts, with the sparse columns of the model, width of them."""
    documents = [part.retriever.documents for part in parts]
    return gather(documents, selected, width, [part.features for part in parts])


class Hit(NamedTuple):
    """One document of an answer: score = dense + lexical + bias + boost.

    Attributes:
        part, row: Where the document is.
        boost: What the request adds to the score.
        features: float32 (K,), what the second stage ordered it by; None if it did not.
        keys: What a request sorts it by, the smallest first; None: its score.
        words: The words of the query that contributed most, where ``Bundle.search`` explains.
        second_stage: Likewise the score that the hit was reordered by; None if it was not.
        clicks: Likewise what people chose before; None if the model counts no clicks.
        snippets: By field, where ``Bundle.search`` highlights.
    """

    part: Part
    row: int
    id: str
    score: float
    dense: float
    lexical: float
    bias: float
    boost: float = 0.0
    features: Float32 | None = None
    keys: tuple[float, ...] | None = None
    words: list[WordScore] | None = None
    second_stage: SecondScore | None = None
    clicks: ClickShare | None = None
    snippets: Mapping[str, Snippet] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        return self.part.store.fields(self.row)

    @property
    def explanation(self) -> dict[str, Any] | None:
        """The parts of the score as a service answers them, ``fullrank.replies.Explanation``; None unless explained."""
        if self.words is None:
            return None
        return {
            # They add up to the score to the last digit.
            "dense": self.dense,
            "lexical": self.lexical,
            "bias": self.bias,
            "boost": self.boost,
            "words": [
                {"word": word.word, "dense": float(word.dense), "lexical": float(word.lexical)}
                for word in self.words
            ],
            "clicks": None if self.clicks is None else self.clicks._asdict(),
            "second_stage": None if self.second_stage is None else self.second_stage.as_dict(),
        }

    @property
    def highlight(self) -> dict[str, Any] | None:
        """The snippets as a service answers them; None without any."""
        if self.snippets is None:
            return None
        return {
            name: {"snippet": own.text, "spans": own.spans} for name, own in self.snippets.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the hit as a service answers it: ``fullrank.replies.Hit``."""
        return {
            "id": self.id,
            "score": self.score,
            "fields": self.fields,
            "explanation": self.explanation,
            "rule": None,
            "highlight": self.highlight,
        }

    def __eq__(self, other: object) -> bool:
        # Whatever bundle and row the document is in.
        return (
            isinstance(other, Hit)
            and (*self[2:8], *self[9:]) == (*other[2:8], *other[9:])
            and self.fields == other.fields
        )

    def __repr__(self) -> str:
        return f"<Hit {self.id!r}, score {self.score:.3f}: {reprlib.repr(self.fields)}>"


@dataclass(frozen=True, slots=True, repr=False)
class Hits(Sequence[Hit]):
    """An answer.

    Attributes:
        hits: Best first, ties by id.
        certified: Whether the hits are provably the top of the full ranking, before a second stage reordered it.
        total: Number of documents that match.
        is_total: Whether these are all that match; otherwise they are at least so many.
        reordered: Number of the first documents that a second stage reordered; their scores do not descend.
        facets: The values of fields, where ``Bundle.search`` counts them.
    """

    hits: list[Hit]
    certified: bool
    total: int
    is_total: bool = True
    reordered: int = 0
    facets: Mapping[str, Facet] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return what a service answers about the hits: those fields of ``fullrank.replies.SearchReply``."""
        return {
            "total": self.total if self.is_total else None,
            "total_at_least": None if self.is_total else self.total,
            "certified": self.certified,
            "reordered": self.reordered,
            "hits": [hit.as_dict() for hit in self.hits],
            "facets": {name: facet.as_dict() for name, facet in self.facets.items()},
        }

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.hits[place]

    def __repr__(self) -> str:
        total = f"{'' if self.is_total else 'at least '}{self.total:,}"
        return f"<{len(self)} of {total} hits: {reprlib.repr([hit.id for hit in self.hits])}>"

    def _repr_html_(self) -> str:
        """Show a table in a notebook: scores, ids and the stored fields, long ones cut."""
        fields = [hit.fields for hit in self.hits]
        names = list(dict.fromkeys(name for stored in fields for name in stored))
        rows = [
            [
                f"{hit.score:.3f}",
                hit.id,
                *("" if (v := stored.get(name)) is None else v for name in names),
            ]
            for hit, stored in zip(self.hits, fields, strict=True)
        ]
        cells = (
            "".join(f"<td>{escape(shorten(str(cell), 120))}</td>" for cell in row) for row in rows
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in ("score", "id", *names))
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def explained(
    hit: Hit,
    query: Query,
    terms: Sequence[TermShare],
    stage: SecondStage | None,
    learned: ClickParts | None = None,
) -> Hit:
    """Attach to a hit what moved its score: words of the query, the second stage, and clicks that were learned."""
    second = None if stage is None or hit.features is None else stage.explain(hit.features)
    clicks = None
    if learned is not None:
        clicks = hit.part.clicks(learned, query, learned.key(query.text), hit.row)
    words = hit.part.explain(terms, query, hit.row).words
    return hit._replace(words=words, second_stage=second, clicks=clicks)


def highlighted(
    model: Model,
    parts: Sequence[Part],
    text: str,
    query: Query,
    hits: Sequence[Hit],
    asked: Highlight,
) -> list[Hit]:
    """Attach snippets to hits, given the text of the query."""
    if not hits:
        return []
    number = {id(part): i for i, part in enumerate(parts)}
    selected = Selection.of([(number[id(hit.part)], hit.row) for hit in hits])
    encoded = gather_in_model_features(parts, selected, model.n_sparse)
    # Synonyms and completions of the last word are words of the query, too.
    text = " ".join([text, *(term.term for term in query.find_terms())])
    snippets = highlights(model, text, query, [hit.fields for hit in hits], encoded, asked)
    return [hit._replace(snippets=own) for hit, own in zip(hits, snippets, strict=True)]


def features_of(
    stage: SecondStage, text: str, parts: Sequence[Part], hits: Sequence[Hit]
) -> Float32 | None:
    """Compute what a second stage orders hits by, best first, float32 (R, K); None without hits or facts."""
    number = {id(part): i for i, part in enumerate(parts)}
    facts = gather_facts(parts, Selection.of([(number[id(hit.part)], hit.row) for hit in hits]))
    if facts is None:
        return None
    columns = zip(*((hit.score, hit.dense, hit.lexical, hit.bias) for hit in hits), strict=True)
    return stage.features(text, FirstStage(*(np.array(column) for column in columns)), facts)


def reordered(
    stage: SecondStage, text: str, parts: Sequence[Part], found: Hits, page: slice
) -> Hits:
    """Reorder the first ``DEPTH`` hits of a ranking by the second stage, and return a page of the result."""
    hits = found.hits[:DEPTH]
    features = features_of(stage, text, parts, hits)
    if features is None:
        return replace(found, hits=[])
    order = stage.order_by(features)
    best = [
        found.hits[i]._replace(features=order.features[i]) if i < len(hits) else found.hits[i]
        for i in order.places(len(found.hits))[page].tolist()
    ]
    return replace(found, hits=best, reordered=len(hits))


@dataclass(frozen=True, eq=False)
class Searchable:
    """Documents that are searched as one collection.

    Attributes:
        base: The documents of a bundle.
        added: Segments of documents added since, oldest first.
        second_stage: Reorders the first documents of a ranking; None: the bundle has no second stage.
    """

    base: Part
    added: tuple[Part, ...] = ()
    second_stage: SecondStage | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.base, *self.added)

    def __len__(self) -> int:
        return sum(part.n_live for part in self.parts)

    @cached_property
    def columns(self) -> list[Columns]:
        """The columns of each part, aligned so that a filter is valid for all or for none."""
        return aligned([part.columns for part in self.parts]) if self.added else [self.base.columns]

    def deleted(
        self, matching: Sequence[Mask] | None = None, exclude: Collection[str] = ()
    ) -> list[Mask | None]:
        """Return for each part the documents to leave out: removed, not matching and excluded ones, or None.

        Args:
            matching: bool (n,) for each part, the documents that match a filter; None without a filter.
        """
        masks: list[Mask | None] = []
        for i, part in enumerate(self.parts):
            mask = part.removed
            if matching is not None:
                mask = ~matching[i] if mask is None else mask | ~matching[i]
            masks.append(mask)
        return self.marked(masks, exclude, True)

    def marked(
        self, masks: Sequence[Mask | None], ids: Collection[str], value: bool
    ) -> list[Mask | None]:
        """Set a value for some ids. Masks that change are copied; unknown ids are ignored."""
        changed: dict[int, Mask] = {}
        for id in ids:
            for i, part in enumerate(self.parts):
                if (row := part.row(id)) is not None:
                    if i not in changed:
                        mask = masks[i]
                        changed[i] = np.zeros(len(part), np.bool_) if mask is None else mask.copy()
                    changed[i][row] = value
        return [changed.get(i, mask) for i, mask in enumerate(masks)]

    def below(
        self, query: Encoded, floor: Floor, deleted: Sequence[Mask | None]
    ) -> list[Mask | None]:
        """Return ``deleted``, with all documents that do not reach a floor for one query."""
        pairs = zip(self.parts, deleted, strict=True)
        return [
            part.below(query, floor.of_live(part is not self.base), mask) for part, mask in pairs
        ]

    def lacking(
        self,
        query: Encoded,
        required: Required,
        deleted: Sequence[Mask | None],
        allowed: Sequence[Mask | None],
        choice: Choice | None = None,
        hidden: Sequence[Mask | None] | None = None,
    ) -> tuple[list[Mask | None], Choice]:
        """Leave out the documents that lack required words.

        Args:
            deleted: As ``self.deleted`` returned it.
            allowed: The same, of the documents among which one must be left.
            choice: Of the words; None: that of these documents.
            hidden: The same as deleted, of documents whose words are not required; None: those that were removed.

        Returns:
            ``deleted`` with those documents, and the choice.
        """
        bits = [part.words_had(required) for part in self.parts]
        if choice is None:
            gone = [part.removed for part in self.parts] if hidden is None else hidden
            parts = zip(gone, bits, allowed, strict=True)
            choice = required.together(required.choice(own, out, mask) for out, own, mask in parts)
        chosen = [
            part.lacking(required, own, choice, mask, query)
            for part, own, mask in zip(self.parts, bits, deleted, strict=True)
        ]
        return chosen, choice

    def search(
        self,
        query: Encoded,
        limit: int,
        *,
        offset: int = 0,
        deleted: Sequence[Mask | None] | None = None,
        mode: str = "exact",
        is_counted: bool = True,
    ) -> Hits:
        """Return the places offset..offset + limit of the ranking of all documents for one query.

        Args:
            query: One query. A ``Query`` returns only documents that reach its floor: the exact mode counts them, up to
                ``COUNTED``; the fast mode counts those it found. Pass its required words to ``lacking`` first.
            limit: Maximum number of hits, at least 1.
            offset: First place to return.
            deleted: As ``self.deleted`` returned it; default: removed documents only.
            mode: "exact" or "fast". Segments of fewer than 20,000 documents are always searched exactly.
            is_counted: False: with a floor, only the returned hits are counted.
        """
        asked = Query.from_encoded(query)
        floor = asked.floor
        stage = self.second_stage if asked.is_reordered and offset < DEPTH else None
        page = slice(offset, offset + limit)
        if stage is not None:
            offset, limit = 0, max(DEPTH, page.stop)
        # Only the ids of the page are read, because the order of one part needs none.
        has_ids = stage is None or bool(self.added)
        wanted, first = (offset + limit, 0) if self.added else (limit, offset)
        count = 0 if floor is not None and is_counted and mode == "exact" else None
        hits: list[Hit] = []
        certified, total, least = True, 0, -math.inf
        deleted = self.deleted() if deleted is None else deleted
        # The bundle first: the scores of its best documents spare the search of most others.
        for part, mask in zip(self.parts, deleted, strict=True):
            found = part.search(
                query, wanted, offset=first, deleted=mask, mode=mode, least=least,
                floor=None if floor is None else floor.of_live(part is not self.base),
                counted=None if count is None or count > COUNTED else COUNTED - count,
            )  # fmt: skip
            if count is not None:
                count += found.found or 0
            certified, total = certified and found.certified, total + found.total
            rows = found.rows.tolist()
            ids = part.store.ids_of(rows) if has_ids else [""] * len(rows)
            parts = (
                column.tolist() for column in (found.scores, found.dense, found.lexical, found.bias)
            )
            new = [
                Hit(part, row, id, score, *shares)
                for row, id, score, *shares in zip(rows, ids, *parts, strict=True)
                if score >= least
            ]
            if new and self.added:
                hits = sorted(hits + new, key=_place)[:wanted]
                least = hits[-1].score if len(hits) == wanted else least
            else:
                hits += new
        hits, is_total = hits[offset:] if self.added else hits, True
        if floor is not None:
            total, is_total = offset + len(hits), len(hits) < limit and (bool(hits) or not offset)
            if is_counted and count is None and not hits and offset:
                # Beyond the last hit of a fast search, which tells nothing about their number.
                count = self.count(query, floor, deleted)
        if count is not None and not is_total:
            total, is_total = min(count, COUNTED), count <= COUNTED
        answer = Hits(hits, certified, total, is_total)
        if stage is None:
            return answer
        answer = reordered(stage, asked.text, self.parts, answer, page)
        if has_ids:
            return answer
        ids = self.base.store.ids_of([hit.row for hit in answer.hits])
        named = [hit._replace(id=id) for hit, id in zip(answer.hits, ids, strict=True)]
        return replace(answer, hits=named)

    def count(self, query: Encoded, floor: Floor, deleted: Sequence[Mask | None]) -> int:
        count = 0
        for part, mask in zip(self.parts, deleted, strict=True):
            own = floor.of_live(part is not self.base)
            mask = part.removed if mask is None else mask
            count += part.count(query, own, COUNTED, mask)
        return count


def _place(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.id
