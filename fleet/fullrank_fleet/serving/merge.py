"""Merge the answers of shards into the answer of the whole.

Vocabulary, idf and biases are in the model, so a document has the same score in its shard as in an unsharded bundle,
bit for bit, and the first k of the whole are among the first k of each shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from fullrank.filters.facets import merged
from fullrank.retrieval.candidates import COUNTED
from fullrank.search.ordering import Group, within
from fullrank.search.rerank.stage import DEPTH, SecondStage
from fullrank.storage.encoding import Float32
from fullrank_fleet.serving.wire import Found, Scored, Shown
from fullrank_service.documents.ad import Ad
from fullrank_service.search.request import RankRequest
from fullrank_service.search.searching import ranges_json


class Place(NamedTuple):
    """A hit in the order of the whole: smaller ones come first.

    Attributes:
        key: What it is sorted by: its score, negative, or the keys of ``sort``.
        row: Its place in the answer of the shard.
    """

    key: tuple[float, ...]
    id: str
    shard: int
    row: int


class SetHit(NamedTuple):
    """A hit of the whole.

    Attributes:
        scores: Score, dense, lexical, bias and boost.
        shown: As an answer shows it, if its shard was asked for that.
        features: float32 (K,), what the second stage ordered it by; None if it did not.
    """

    shard: int
    id: str
    scores: Sequence[float]
    shown: Shown | None
    features: Float32 | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The answers of shards as one.

    Attributes:
        found: By number of the shard.
        places: All hits, or the first ones that are needed, in the order of the whole.
        features: float32 (K,) of each hit that a second stage has reordered; these are the first ones.
        is_reordered: Whether a second stage was applied, perhaps to no hits.
    """

    found: Mapping[int, Found]
    places: list[Place]
    features: Mapping[Place, Float32] = field(default_factory=dict)
    is_reordered: bool = False

    @classmethod
    def of(
        cls, found: Mapping[int, Found], stage: SecondStage | None = None, most: int | None = None
    ) -> Merged:
        """Merge answers by (−score, id), or by (keys, id).

        Args:
            stage: Reorders the first hits then; each shard has sent the features of its own first ones.
            most: Hits that are needed; None: all.
        """
        sorted_places = [_places(number, answer) for number, answer in found.items()]
        if most is None:
            merged = cls(found, sorted(chain.from_iterable(sorted_places)))
        else:
            merged = cls(found, list(islice(merge(*sorted_places), most)))
        return merged if stage is None else merged._reordered(stage)

    def _reordered(self, stage: SecondStage) -> Merged:
        first = self.places[:DEPTH]
        if not first:
            return replace(self, is_reordered=True)
        scores = np.array([self.scores(place)[0] for place in first])
        order = stage.order_merged(np.array([self._features(place) for place in first]), scores)
        places = [self.places[row] for row in order.places(len(self.places)).tolist()]
        features = dict(zip(first, order.features, strict=True))
        return Merged(self.found, places, features, is_reordered=True)

    def _features(self, place: Place) -> Float32:
        features = self.found[place.shard].features
        assert (
            features is not None
        )  # the model id of a set covers its second stage, so each shard has it
        own: Float32 = features[place.row]
        return own

    @property
    def is_certified(self) -> bool:
        return all(answer.certified for answer in self.found.values())

    @property
    def mode(self) -> str:
        return "fast" if any(answer.mode == "fast" for answer in self.found.values()) else "exact"

    def kept(self, limit: int, count: int) -> tuple[list[Place], bool]:
        """Return up to ``count`` hits, at most ``limit`` of a group, and whether they are those of the whole.

        False if a shard stopped early and may have more.
        """
        kept = within(map(self.groups_of, self.places), limit)[:count]
        found = [self.places[row] for row in kept]
        ends = [
            place
            for n, answer in self.found.items()
            if not answer.is_all
            for place in _places(n, answer, len(answer.hits.ids) - 1)
        ]
        return found, not ends or (len(found) == count and found[-1] <= min(ends))

    def groups_of(self, place: Place) -> Sequence[Group]:
        groups = self.found[place.shard].groups
        return () if groups is None else groups[place.row]

    def scores(self, place: Place) -> list[float]:
        """Return score, dense, lexical, bias and boost of a hit."""
        found: list[float] = self.found[place.shard].hits.scores[place.row].tolist()
        return found

    def hit(self, place: Place) -> SetHit:
        shown = self.found[place.shard].shown
        own = None if shown is None else shown[place.row]
        return SetHit(place.shard, place.id, self.scores(place), own, self.features.get(place))

    def ad(self, place: Place) -> Ad | None:
        return self.found[place.shard].ads[place.row]

    def total(
        self, page: Sequence[Place], request: RankRequest, is_capped: bool
    ) -> tuple[int, bool]:
        """Return how many documents are found, and whether these are all.

        Args:
            page: The hits of the answer.
            is_capped: Documents that reach a floor were counted, up to ``COUNTED``.
        """
        if is_capped and self.mode == "fast":
            # A search that looks at some documents knows those only.
            offset, limit = request.offset, request.limit
            if self.is_reordered:
                offset, limit = 0, max(DEPTH, offset + limit)
                page = self.places[:limit]
            is_total = len(page) < limit and (bool(page) or not offset)
            return offset + len(page), is_total
        total = sum(answer.total for answer in self.found.values())
        is_total = all(answer.is_total for answer in self.found.values())
        if is_capped and (total > COUNTED or not is_total):
            return COUNTED, False
        return total, is_total

    def facets(self, request: RankRequest) -> dict[str, Any]:
        return {
            name: merged(
                [part for one in self.found.values() for part in one.facets[place]],
                request.asked.facet_limit,
            ).as_dict()
            for place, name in enumerate(request.asked.facets)
            if request.counts(name)
        }

    def ranges(self, request: RankRequest) -> dict[str, Any]:
        return {
            name: ranges_json(
                ranges,
                [
                    sum(own)
                    for own in zip(*(a.ranges[name] for a in self.found.values()), strict=True)
                ],
            )
            for name, ranges in request.asked.ranges.items()
            if request.counts(name)
        }


def _places(number: int, answer: Found, first: int = 0) -> Iterator[Place]:
    scores = answer.hits.scores[first:, 0].tolist()
    keys = ((-score,) for score in scores) if answer.keys is None else answer.keys[first:]
    for row, (key, id) in enumerate(zip(keys, answer.hits.ids[first:], strict=True), first):
        yield Place(key, id, number, row)


def scored(hits: Sequence[SetHit]) -> Scored:
    scores = np.array([hit.scores for hit in hits], np.float64).reshape(-1, 5)
    return Scored([hit.id for hit in hits], scores)
