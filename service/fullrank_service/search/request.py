"""A search, and its answer, inside the service. Not frozen: a frozen dataclass takes longer to make than to check."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fullrank.live import View
from fullrank.models.contract import Model
from fullrank.search.ordering import Ordering
from fullrank.search.query import Options
from fullrank.search.rules.synonyms import Replaced
from fullrank_service.events.shown import NOTHING, Tried
from fullrank_service.search.schemas import SearchRequest

# Limits of a plain search: documents, and characters of the query.
_MAX_PLAIN_HITS, _MAX_PLAIN_CHARS = 100, 256


class Restriction(NamedTuple):
    """A filter that a rule adds to a search."""

    rule: str
    filter: Mapping[str, Any]


class After(NamedTuple):
    """Where a page begins: after a score and, among equal ones, an id; place: hits on the pages before."""

    score: float = math.inf
    id: str = ""
    place: int = 0


@dataclass(slots=True)
class RankRequest:
    """A search as it was asked for, and what the service adds.

    asked        what callers may ask for (schemas.py); a page or a document as the query is one of these too
    limit        number of hits; it and offset are not those of ``asked`` where lists are interleaved or have pins
    exclude      ids of documents that must not be returned; unknown ids are ignored
    filter_path  name of the filter in errors
    with_clicks  the explanation of each hit has its clicks, without anything else unless `explain` asks for it
    is_document  the text is a document or a page, not something that a person typed
    after        begin after this hit instead of at the offset; the order is then that of the score alone
    filling      a PageFilling of ``ads``, whose placements get the hits; None: the hits are one list
    ordering     the order of the hits; None: by score
    key_filter   filter of the caller's key: what does not match is not there at all
    restrictions filters of rules, in addition to the request's own; one that does not fit the fields is ignored
    synonyms     texts whose lexical features the query gains (fullrank.search.rules.synonyms)
    only         rank these documents alone; unknown ids are ignored
    by_name      these are documents by id or by the value of an identifier (fullrank.filters.identifiers)
    pinned       ids with fixed places: not ranked, but counted in facets
    is_strict    it must have every word, unless `match` says any
    by_any_word  a document that has any word of the query has evidence
    counted      the only fields of facets and facet_ranges to count; None: all
    is_part      another search needs this one, and metrics count that one alone
    max_bytes    most bytes of fields, explanations and highlights of all hits together
    """

    asked: SearchRequest
    limit: int
    offset: int = 0
    exclude: Collection[str] = ()
    filter_path: str = "filter"
    with_clicks: bool = False
    is_document: bool = False
    after: After | None = None
    filling: Any = None
    key_filter: Mapping[str, Any] | None = None
    ordering: Ordering | None = None
    restrictions: Sequence[Restriction] = ()
    synonyms: Sequence[Replaced] = ()
    only: Collection[str] | None = None
    by_name: bool = False
    pinned: Collection[str] = ()
    is_strict: bool = False
    by_any_word: bool = False
    counted: Collection[str] | None = None
    is_part: bool = False
    max_bytes: int = sys.maxsize

    @property
    def text(self) -> str:
        return self.asked.query

    @property
    def mode(self) -> str:
        """Return "exact", "fast" where the bundle has that mode, or "auto" (ranking.py)."""
        return "exact" if self.is_listing or self.after is not None else self.asked.mode

    @property
    def is_listing(self) -> bool:
        """Whether the query is empty, so that all documents are found; an empty document finds none."""
        return self.asked.is_listing and not self.is_document

    def model(self, view: View) -> Model:
        """Return the model that encodes the text."""
        return view.model.for_documents if self.is_document else view.model

    @property
    def options(self) -> Options:
        """What is asked of the query."""
        asked = self.asked
        least = -math.inf if self.is_listing and asked.min_score is None else asked.min_score
        return Options(
            asked.match, least, asked.prefix == "last", tuple(self.synonyms), self.is_document,
            self.is_strict, self.by_any_word, is_free=self.only is not None,
        )  # fmt: skip

    @property
    def is_counted(self) -> bool:
        """Whether values or ranges of fields are counted."""
        return self.only is None and bool(self.asked.facets or self.asked.facet_ranges)

    def counts(self, name: str) -> bool:
        """Return whether the values or ranges of a field are counted."""
        return self.counted is None or name in self.counted

    @property
    def counts_clicks(self) -> bool:
        """Whether new clicks count: a person typed the query, and this is no page of a cursor, whose list stays."""
        return self.after is None and not self.is_document

    @property
    def compared(self) -> set[str]:
        """The fields whose values are compared, so that times count as numbers: those of sort, boosts and ranges."""
        order = self.ordering
        names = set(self.asked.facet_ranges)
        if order is None:
            return names
        return names.union(
            (key.field for key in order.sort), (boost.field for boost in order.boosts)
        )

    @property
    def is_restricted(self) -> bool:
        """Whether documents with evidence may be left out."""
        return bool(
            self.asked.filter is not None
            or self.after is not None
            or self.restrictions
            or self.exclude
            or self.pinned
        )

    @property
    def unrestricted(self) -> RankRequest:
        """The request for one of all documents with evidence."""
        asked = self.asked
        plain = SearchRequest.model_construct(
            query=asked.query, fields=[], match="any", mode=self.mode, prefix=asked.prefix,
            partial=asked.partial,
        )  # fmt: skip
        return RankRequest(plain, 1, synonyms=self.synonyms, key_filter=self.key_filter)

    @property
    def is_plain(self) -> bool:
        """Whether it is a short query for the first hits and nothing else; such searches take similar times."""
        asked = self.asked
        return not (
            asked.explain
            or asked.facets
            or asked.facet_ranges
            or asked.filter is not None
            or asked.min_score is not None
            or asked.highlight is not None
            or self.exclude
            or self.key_filter is not None
            or self.restrictions
            or self.synonyms
            or self.pinned
            or self.after is not None
            or self.only is not None
            or self.filling is not None
            or self.ordering is not None
            or self.offset + self.limit > _MAX_PLAIN_HITS
            or len(self.text) > _MAX_PLAIN_CHARS
            or self.is_listing
        )


@dataclass(slots=True)
class Ranked:
    """The answer: hits in order and facets by field, ready for JSON.

    certified  the hits are provably the top of the full ranking, before a second stage reordered it
    is_total   whether total is exact; otherwise it is a lower bound
    reordered  number of the first documents that a second stage reordered
    following  where the next page begins, after a request with `after`; None: there is no other
    filled     the Placed of ``ads``: how the hits fill the placements of a page
    covered    share of the documents that were searched
    pinned     places of pinned hits, from 0
    """

    hits: list[dict[str, Any]]
    certified: bool
    total: int
    is_total: bool
    facets: dict[str, Any]
    mode: str
    reordered: int
    filled: Any = None
    following: After | None = None
    facet_ranges: dict[str, Any] = field(default_factory=dict)
    covered: float = 1.0
    tried: Tried = NOTHING
    pinned: tuple[int, ...] = ()
