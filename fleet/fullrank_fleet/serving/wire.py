"""What a router and the shards send each other: pickled dataclasses, whose arrays travel as their bytes.

Unpickling runs what the sender wants, so shards and routers must share a private network with nobody else.

    Ask(version, set_id, question, min_seq, clicks)
        →  Answer(set_id, content, seq), Behind, LacksClicks or Refused

    Rank       the first documents of the shard's own ranking    Found
    CountAds   how many ads a page leaves out                    LeftOut
    Show       hits as an answer shows them                      list of Shown, None for those of other shards
    Describe   the encodings of documents                        Described
    Read       the stored fields of a document                   JSON object; None without such a document
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from fullrank.filters.facets import FacetCounts
from fullrank.retrieval.ranking import Choice
from fullrank.search.ordering import Group
from fullrank.search.part import NewClicks, Query
from fullrank.storage.encoding import Encoded, Float32, Float64
from fullrank_fleet.serving.head import NONE_NEW, NewFields
from fullrank_service.ads.filling import Conditions
from fullrank_service.ads.placing import Wanted
from fullrank_service.ads.rules import PriceFloor
from fullrank_service.documents.ad import Ad
from fullrank_service.search.request import RankRequest


@dataclass(frozen=True, slots=True)
class Rank:
    """Asks for the first documents of a ranking.

    Attributes:
        request: Shards read its offset, limit, mode and what decides the ranking.
        query: Analysed by the router.
        is_shown: Whether to return the hits as an answer shows them too.
        fields: What live documents have added to the fields of the set.
        page: Which ads a page to be filled may show, without a taxonomy; None: the hits are one list.
        wanted: The documents that the page lacks.
        is_reordered: Whether to send what the second stage reads: it reorders the first documents of the merged
            ranking.
        choice: Of the required words, by all shards; None: by this shard alone.
    """

    request: RankRequest
    query: Query
    is_shown: bool
    fields: NewFields = NONE_NEW
    page: Conditions | None = None
    wanted: Wanted | None = None
    is_reordered: bool = False
    choice: Choice | None = None


class Scored(NamedTuple):
    """Documents, and float64 (n, 5) their scores: score, dense, lexical, bias, boost."""

    ids: Sequence[str]
    scores: Float64


class Shown(NamedTuple):
    """A hit as an answer shows it; fields: JSON of the stored fields that are asked for."""

    fields: bytes
    explanation: dict[str, Any] | None
    highlight: dict[str, Any] | None

    def hit(self, id: str, score: float) -> dict[str, Any]:
        """Return the hit, ready for JSON."""
        return {
            "id": id,
            "score": score,
            "fields": orjson.Fragment(self.fields),
            "explanation": self.explanation,
            "rule": None,
            "highlight": self.highlight,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """The first documents of a shard's own ranking.

    Attributes:
        hits: In the order of the ranking.
        keys: What each is sorted by, the smallest first; None: its score.
        groups: Of each hit; None without ``group_by``.
        is_all: Whether there are no others.
        certified, total, is_total, mode: As of ``fullrank_service.search.request.Ranked``.
        facets: All values of each field, in the order of the request; several counts of a field are added.
        shown: The hits, if they were asked for.
        ads: The ad of each hit, for a page; None: the document has no ad.
        dearest: As of ``fullrank_service.ads.placing.Candidates``.
        features: float32 (R, K), what the second stage reads of the first hits, as far as it may reorder them.
        choice: Of the required words, that was asked for or of this shard; None: none is required.
    """

    hits: Scored
    keys: Sequence[tuple[float, ...]] | None
    groups: Sequence[Sequence[Group]] | None
    is_all: bool
    certified: bool
    total: int
    is_total: bool
    mode: str
    facets: Sequence[Sequence[FacetCounts]]
    ranges: Mapping[str, Sequence[int]]
    shown: Sequence[Shown] | None
    ads: Sequence[Ad | None] = ()
    dearest: float = 0.0
    features: Float32 | None = None
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class CountAds:
    """Asks how many ads a filled page leaves out.

    Attributes:
        page, fields: As of ``Rank``.
        placed: Ids of the documents that are on the page.
        full: Domains of the advertisers without a free place.
        floors: Of the placements.
    """

    request: RankRequest
    page: Conditions
    placed: Sequence[str]
    full: frozenset[str]
    floors: Sequence[PriceFloor | None]
    fields: NewFields = NONE_NEW


class LeftOut(NamedTuple):
    """Numbers of ads that are left out, by reason: by the page, and by each placement."""

    page: Mapping[str, int]
    placements: Sequence[Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Show:
    """Asks for hits as an answer shows them.

    Attributes:
        hits: Documents of any shards; the shard shows its own.
    """

    request: RankRequest
    query: Query
    hits: Scored


@dataclass(frozen=True, slots=True)
class Describe:
    """Asks for the encodings of documents; width: number of sparse features."""

    ids: Sequence[str]
    width: int


@dataclass(frozen=True, slots=True)
class Described:
    """Encodings of the documents that the shard still has."""

    ids: Sequence[str]
    encoded: Encoded


@dataclass(frozen=True, slots=True)
class Read:
    id: str
    only: Mapping[str, Any] | None = None
    fields: NewFields = NONE_NEW


Question = Rank | CountAds | Show | Describe | Read


class SentClicks(NamedTuple):
    """The clicks of a router's log that count for one search.

    Attributes:
        key: Of the query; None: nobody has clicked after it.
        clicked: Clicks after it, by id of the document.
        fingerprint: Of the clicks after any query.
        popular: These, by id; None: the shard may have them since an earlier search.
    """

    key: str | None
    clicked: Mapping[str, int]
    fingerprint: str
    popular: Mapping[str, int] | None

    @classmethod
    def of(cls, clicks: NewClicks, text: str) -> SentClicks:
        key = clicks.key(text)
        clicked = {} if key is None else clicks.clicked(key)
        return cls(key, clicked, clicks.fingerprint, clicks.of_document)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a shard.

    Attributes:
        version: Of the set that must answer: that of the request's generation.
        set_id: Of the same set, which tells two sets of one version apart.
        min_seq: Operation of the log that the answer must contain.
        clicks: That the set has not learned.
    """

    version: str
    set_id: str
    question: Question
    min_seq: int = 0
    clicks: SentClicks | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a set; seq: the last operation of the log that it contains."""

    set_id: str
    content: Any
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """The shard has read the log up to this operation only; it reads on now."""

    seq: int


@dataclass(frozen=True, slots=True)
class LacksClicks:
    """The shard lacks the clicks after any query, which the router must send."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The question does not fit the documents, as FilterError says."""

    path: str
    reason: str


Reply = Answer | Behind | LacksClicks | Refused


def pack(message: Ask | Reply) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpack_ask(payload: bytes) -> Ask:
    message: Ask = pickle.loads(payload)
    return message


def unpack_reply(payload: bytes) -> Reply:
    message: Reply = pickle.loads(payload)
    return message
