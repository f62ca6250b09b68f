"""The hits of a view in the order that a request asks for.

    sort        all documents that match, by fields, ties by id
    boosts      score + Σ boosts, ties by id
    group_by    after any of these, keeps the first documents of each group, up to its limit
    diversity   reorders the first DEPTH of the rest

The exact mode stays exact with boosts. Let b be the largest boost of a document that may be returned. The ranking by
score is read down to a score g such that g + b is less than the boosted score of the k-th best document so far: none of
those below can be among the best k.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from fullrank.errors import FilterError
from fullrank.filters.columns import ColumnPart, Columns
from fullrank.filters.columns.table import (
    Column,
    Point,
    Scale,
    dictionary,
    distances_of,
    largest,
    scale_of,
    time_of,
)
from fullrank.filters.facets import columns_of_field, kinds_of, usable_fields
from fullrank.retrieval import Mask
from fullrank.retrieval.ranking import remaining
from fullrank.search.part import Part, Query
from fullrank.search.searchable import Hit, Hits, Searchable, Selection, gather_in_model_features
from fullrank.storage.encoding import Encoded, Float64, Int64

# The order of documents by fields.
#
# A field has numbers, true and false, times, or places, which count by their distance from a point in km. Of several
# values of a document the smallest counts in ascending order, the largest in descending order. Documents without a
# value come last in both.

MAX_KEYS = 4


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field to order by; near: by the distance of its places from this point."""

    field: str
    is_descending: bool = False
    near: Point | None = None


def sort_values(parts: Sequence[Columns], keys: Sequence[SortKey]) -> list[Float64]:
    """Return the sort values of the documents of several parts.

    Returns:
        For each part float64 (keys, documents): the smallest come first, infinity is missing.

    Raises:
        FilterError: A field is unknown or has no order.
    """
    found = [np.empty((len(keys), columns.documents)) for columns in parts]
    for i, key in enumerate(keys):
        here = f"sort.{i}.field"
        columns = columns_of_field(parts, key.field, here)
        scale = scale_of(columns)
        if key.near is not None:
            _check_places(columns, here)
        elif scale is None:
            known = usable_fields(parts, ("number", "boolean", "time"))
            raise FilterError(
                here,
                f"this field has {kinds_of(columns)}, which is not sorted; fields to sort by: {known}",
            )
        sign = 1.0 if key.is_descending else -1.0
        for rows, column in zip(found, columns, strict=True):
            own = _numbers(column, scale, key.near)
            if own is None:
                rows[i] = np.inf
            else:
                part, values = own
                rows[i] = -largest(part, sign * values, column.documents)
    for rows in found:
        rows[np.isnan(rows)] = np.inf
    return found


def _check_places(columns: Sequence[Column], path: str) -> None:
    if not any("keyword" in column.kinds for column in columns):
        raise FilterError(path, f"this field has {kinds_of(columns)}, and no places")


def _numbers(
    column: Column, scale: Scale | None, near: Point | None
) -> tuple[ColumnPart, Float64] | None:
    """Return a part of a column, and a number for each of its values: on the scale, or the distance from a point."""
    if near is None:
        return None if scale is None else dictionary(column, scale)
    part = column.parts.get("keyword")
    return None if part is None else (part, distances_of(part, near))


def first_rows(values: Float64, rows: Int64, count: int) -> Int64:
    """Return the first `count` of some rows in the order of their values, ties by row."""
    if len(rows) > count:
        first = values[0, rows]
        # Only these can be among the first.
        rows = rows[first <= np.partition(first, count - 1)[count - 1]]
    order = np.lexsort((rows, *values[::-1, rows]))
    return rows[order[:count]]


# Boosts: what fields of a document add to its score.
#
#     decay   weight · factor^(|x − origin| / scale)        1 at the origin, factor one scale away
#     log     weight · ln(1 + x), 0 for x below 0
#
# A document without a value gets 0. A document with several values gets the largest result before the weight.

MAX_BOOSTS = 8
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


@dataclass(frozen=True, slots=True)
class Decay:
    """How a boost falls with the distance from an origin.

    Attributes:
        origin: A number; of a field of times "now", or ISO 8601 with an offset from UTC; of places a point.
        scale: A number above 0, of places in km; of a field of times a duration: 90s, 15m, 12h, 30d or 2w.
        factor: What is left one scale away, between 0 and 1.
    """

    origin: float | str | Point
    scale: float | str
    factor: float = 0.5


@dataclass(frozen=True, slots=True)
class Boost:
    """The boost by one field: a decay, or the logarithm of its value.

    Attributes:
        weight: Any finite number.
        decay: None for the logarithm.
    """

    field: str
    weight: float
    decay: Decay | None = None


def boosts_of(parts: Sequence[Columns], boosts: Sequence[Boost], now: float) -> list[Float64]:
    """Return the sum of the boosts of each document of several parts; now: in seconds since 1970.

    Returns:
        For each part float64 (documents,).

    Raises:
        FilterError: A field is unknown or is neither numbers nor times, or a decay does not fit it.
    """
    total = [np.zeros(columns.documents) for columns in parts]
    for place, boost in enumerate(boosts):
        path = f"boost.{place}"
        columns = columns_of_field(parts, boost.field, f"{path}.field")
        for sums, own in zip(total, _values(parts, columns, boost, now, path), strict=True):
            sums += boost.weight * np.nan_to_num(own, nan=0.0)
    return total


def _values(
    parts: Sequence[Columns], columns: list[Column], boost: Boost, now: float, path: str
) -> list[Float64]:
    """Return the value of one boost for each document of each part, NaN without one."""
    scale = scale_of(columns)
    near = boost.decay.origin if boost.decay and isinstance(boost.decay.origin, Point) else None
    if near is not None:
        _check_places(columns, f"{path}.field")
    elif scale not in ("number", "time") or (scale == "time" and boost.decay is None):
        needed: tuple[Scale, ...] = ("number",) if boost.decay is None else ("number", "time")
        known = usable_fields(parts, needed)
        raise FilterError(
            f"{path}.field",
            f"this field has {kinds_of(columns)}; {'log' if boost.decay is None else 'decay'} needs "
            f"{' or '.join(f'{kind}s' for kind in needed)}, as in: {known}",
        )
    is_time = scale == "time" and near is None
    decay = None if boost.decay is None else _read(boost.decay, is_time, now, path)
    found = []
    for column in columns:
        own = _numbers(column, scale, near)
        if own is None:
            found.append(np.full(column.documents, np.nan))
            continue
        part, x = own
        if decay is None:
            values = np.log1p(np.maximum(x, 0.0))
        else:
            origin, length, factor = decay
            with np.errstate(
                over="ignore"
            ):  # a distance beyond float64 is infinite, and its boost 0
                values = factor ** (np.abs(x - origin) / length)
        found.append(largest(part, values, column.documents))
    return found


def _read(decay: Decay, is_time: bool, now: float, path: str) -> tuple[float, float, float]:
    """Return origin, scale and factor as numbers. Raises FilterError if they do not fit the field."""
    path = f"{path}.decay"
    if not is_time:
        for name, value in (("origin", decay.origin), ("scale", decay.scale)):
            if isinstance(value, str):
                raise FilterError(
                    f"{path}.{name}", "must be a number for a field of numbers or places"
                )
        # Of places, x is the distance from the origin.
        origin = 0.0 if isinstance(decay.origin, Point) else float(decay.origin)
        length = float(decay.scale)
    else:
        origin = _origin(decay.origin, now, f"{path}.origin")
        length = duration(decay.scale, f"{path}.scale")
    if not (math.isfinite(length) and length > 0):
        raise FilterError(f"{path}.scale", "must be above 0")
    return origin, length, decay.factor


def _origin(value: float | str | Point, now: float, path: str) -> float:
    if value == "now":
        return now
    found = time_of(value, needs_offset=True) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path,
            'this field has times: give "now" or a time with an offset from UTC, as 2026-11-23T12:00:00+01:00',
        )
    return found


def duration(value: float | str, path: str) -> float:
    """Read a duration, in seconds. Raises FilterError if it is not one."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path, "this field has times: give a duration, as 90s, 15m, 12h, 30d or 2w"
        )
    return float(found[1]) * _SECONDS[found[2]]


# Groups: documents with an equal value of a field; an answer has a limited number of each.
#
# A document with several values belongs to the group of each value and is left out if one of these is full. A
# document without a value is in no group. Values of different kinds are different.

Group = tuple[str, object]


@dataclass(frozen=True, slots=True)
class GroupBy:
    """At most `limit` hits for each value of a field."""

    field: str
    limit: int = 1


class Groups:
    """The groups of the documents of several parts.

    Raises:
        FilterError: The field is unknown or cannot be a column.
    """

    def __init__(self, parts: Sequence[Columns], field: str) -> None:
        self._columns: list[Column] = columns_of_field(parts, field, "group_by.field")

    def of(self, part: int, row: int) -> list[Group]:
        """Return the groups of a document, given the index of its part and its row."""
        found: list[Group] = []
        for kind, values in self._columns[part].parts.items():
            if values.indptr is None:
                codes = values.codes[row : row + 1]
            else:
                codes = values.codes[values.indptr[row] : values.indptr[row + 1]]
            found += [(kind, values.values[code]) for code in codes.tolist() if code >= 0]
        return found


def within(
    documents: Iterable[Sequence[Group]], limit: int, unordered: int | None = None
) -> list[int]:
    """Return the places of the documents that leave their groups within the limit.

    Args:
        documents: The groups of each.
        limit: Of a group.
        unordered: Return those that may be kept when others, unknown here, come between these, and so many of the
            first may change places with each other. A group is full, whatever the others are, after `limit` documents
            of no other group: each of them is kept and counts, or is left out because the group is full already.
    """
    counts: Counter[Group] = Counter()
    kept = []
    for place, groups in enumerate(documents):
        if place < (unordered or 0) or all(counts[group] < limit for group in groups):
            if unordered is None or len(groups) == 1:
                counts.update(groups)
            kept.append(place)
    return kept


# Hits unlike those before them: maximal marginal relevance (Carbonell and Goldstein 1998).
#
#     next = argmax_d (1 − λ) r(d) − λ max_{s chosen} sim(d, s)
#
# r is the score, from 0 for the least to 1 for the best of the first hits; sim is the cosine of [v | t].
# Ties go to the better score.

DEPTH = 100
"""How many of the first hits are put into another order."""


def similarities(documents: Encoded) -> Float64:
    """Return the cosines of the encodings [v | t] of B documents, float64 (B, B)."""
    dense = documents.dense.astype(np.float64)
    sparse = sp.csr_array(documents.sparse.csr().astype(np.float64))
    products = dense @ dense.T + (sparse @ sparse.T).toarray()
    lengths = np.sqrt(np.diag(products))
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    cosines: Float64 = products * scale[:, None] * scale
    return cosines


def diverse_order(scores: Float64, similar: Float64, diversity: float) -> Int64:
    """Return the order of hits by maximal marginal relevance.

    Args:
        scores: float64 (B,), best first.
        similar: float64 (B, B).
        diversity: λ from 0, the order as it is, to 1, which looks at the first hit's score alone.

    Returns:
        int64 (B,), places in the given order.
    """
    count = len(scores)
    least, best = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    relevance = (scores - least) / (best - least) if best > least else np.zeros(count)
    nearest = np.zeros(count)
    left = np.ones(count, np.bool_)
    order = np.empty(count, np.int64)
    for place in range(count):
        if place == 0:
            chosen = 0
        else:
            value = (1 - diversity) * relevance - diversity * nearest
            chosen = int(np.argmax(np.where(left, value, -np.inf)))
        order[place] = chosen
        left[chosen] = False
        nearest = similar[chosen] if place == 0 else np.maximum(nearest, similar[chosen])
    return order


# A search for boosted documents first reads _FIRST hits; each further step reads _STEP times as many.
_FIRST, _STEP = 100, 8


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order of hits.

    Attributes:
        now: Seconds since 1970, the origin "now" of boosts.
    """

    sort: Sequence[SortKey] = ()
    boosts: Sequence[Boost] = ()
    group_by: GroupBy | None = None
    diversity: float = 0.0
    now: float = 0.0

    @property
    def is_by_score(self) -> bool:
        """Whether the order is that of the ranking, apart from groups."""
        return not (self.sort or self.boosts or self.diversity)


class Order:
    """An ordering over the documents of one view.

    Raises:
        FilterError: A field does not fit.
    """

    def __init__(self, view: Searchable, asked: Ordering) -> None:
        self._view, self._asked = view, asked
        self._number = {id(part): i for i, part in enumerate(view.parts)}
        columns = view.columns
        self._sort = sort_values(columns, asked.sort) if asked.sort else None
        self._boosts = boosts_of(columns, asked.boosts, asked.now) if asked.boosts else None
        self._groups = None
        if asked.group_by is not None:
            self._groups = Groups(columns, asked.group_by.field)

    def search(
        self,
        query: Encoded,
        page: slice,
        *,
        deleted: Sequence[Mask | None],
        mode: str,
    ) -> Hits:
        """Return some places of the order.

        Args:
            page: The places to return, at least one.
            deleted: For each part bool (n,), True for a document to leave out, removed ones too; None leaves out the
                removed ones.
        """
        masks = self._masks(deleted)
        read = partial(self._read, query, masks=masks, mode=mode)
        wanted = max(page.stop, DEPTH) if self._asked.diversity else page.stop
        found, hits, _ = self._deepened(read, wanted, self._in_groups)
        if self._asked.diversity:
            hits = self._diverse(query, hits)
        return replace(found, hits=hits[page])

    def first(
        self,
        query: Encoded,
        count: int,
        *,
        deleted: Sequence[Mask | None],
        mode: str,
        unordered: int = 0,
    ) -> tuple[Hits, bool]:
        """Return the first hits that an answer may have to which other views contribute, without regard to diversity.

        Args:
            unordered: So many of the first hits are returned whatever their groups, because a second stage may reorder
                them with those of other views.

        Returns:
            The hits, in the order before diversity and a second stage, without those that their groups leave out
            whatever the other views have; and whether there are no others.
        """
        masks = self._masks(deleted)
        query = Query.from_encoded(query, is_reordered=False)
        read = partial(self._read, query, masks=masks, mode=mode)
        keep = partial(self._in_groups, unordered=unordered)
        found, hits, is_all = self._deepened(read, count, keep)
        return replace(found, hits=hits[:count]), is_all and len(hits) <= count

    def _deepened(
        self,
        read: Callable[[int], Hits],
        wanted: int,
        keep: Callable[[list[Hit]], list[Hit]],
    ) -> tuple[Hits, list[Hit], bool]:
        """Read the ranking until enough of its hits are kept, or to its end.

        Returns:
            What was read, those of its hits that are kept, and whether it is the whole ranking.
        """
        depth = wanted
        while True:
            found = read(depth)
            hits = keep(found.hits)
            is_all = not len(found.hits) == depth < len(self._view)
            if len(hits) >= wanted or is_all:
                return found, hits, is_all
            depth *= _STEP

    def groups_of(self, hit: Hit) -> list[Group]:
        """Return the groups of a hit; none without ``group_by``."""
        if self._groups is None:
            return []
        return self._groups.of(self._number[id(hit.part)], hit.row)

    def _masks(self, deleted: Sequence[Mask | None]) -> list[Mask | None]:
        return [
            part.removed if mask is None else mask
            for part, mask in zip(self._view.parts, deleted, strict=True)
        ]

    def _read(
        self,
        query: Encoded,
        count: int,
        *,
        masks: Sequence[Mask | None],
        mode: str,
    ) -> Hits:
        if self._sort is not None:
            return self._sorted(query, count, masks, self._sort)
        if self._boosts is None:
            if not self._asked.is_by_score:
                query = Query.from_encoded(query, is_reordered=False)
            return self._view.search(query, count, deleted=masks, mode=mode)
        hits: list[Hit] = []
        certified, total = True, 0
        for part, mask, boosts in zip(self._view.parts, masks, self._boosts, strict=True):
            own, is_certified = _boosted(part, query, count, mask, boosts, mode)
            hits += own
            certified, total = certified and is_certified, total + _kept(part, mask)
        hits.sort(key=lambda hit: (-hit.score, hit.id))
        return Hits(hits[:count], certified, total)

    def _sorted(
        self, query: Encoded, count: int, masks: Sequence[Mask | None], values: Sequence[Float64]
    ) -> Hits:
        hits: list[Hit] = []
        total = 0
        for part, mask, own in zip(self._view.parts, masks, values, strict=True):
            rows = remaining(len(part), mask)
            total += len(rows)
            if len(rows):
                first = first_rows(own, rows, count)
                keys = own[:, first].T.tolist()
                scored = _hits(part, query, first, None)
                hits += [
                    hit._replace(keys=tuple(key)) for key, hit in zip(keys, scored, strict=True)
                ]
        hits.sort(key=lambda hit: (hit.keys or (), hit.id))
        return Hits(hits[:count], True, total)

    def _in_groups(self, hits: list[Hit], unordered: int | None = None) -> list[Hit]:
        if self._asked.group_by is None:
            return hits
        kept = within(map(self.groups_of, hits), self._asked.group_by.limit, unordered)
        return [hits[place] for place in kept]

    def _diverse(self, query: Encoded, hits: list[Hit]) -> list[Hit]:
        first = hits[:DEPTH]
        if not first:
            return hits
        selected = Selection.of([(self._number[id(hit.part)], hit.row) for hit in first])
        encoded = gather_in_model_features(self._view.parts, selected, query.sparse.width)
        scores = np.array([hit.score for hit in first])
        order = diverse_order(scores, similarities(encoded), self._asked.diversity)
        return [first[place] for place in order.tolist()] + hits[DEPTH:]


def _kept(part: Part, mask: Mask | None) -> int:
    return len(part) if mask is None else len(part) - int(np.count_nonzero(mask))


def _hits(part: Part, query: Encoded, rows: Int64, boosts: Float64 | None) -> list[Hit]:
    dense, lexical, bias = part.score_parts(query, rows)
    boost = np.zeros(len(rows)) if boosts is None else boosts[rows]
    columns = (rows, dense + lexical + bias + boost, dense, lexical, bias, boost)
    ids = part.store.ids
    return [
        Hit(part, row, ids[row], *scores)
        for row, *scores in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _boosted(
    part: Part, query: Encoded, count: int, mask: Mask | None, boosts: Float64, mode: str
) -> tuple[list[Hit], bool]:
    """Return the `count` documents of a part with the largest boosted scores, and whether they are certified."""
    rows = remaining(len(part), mask)
    if not len(rows):
        return [], True
    most = float(boosts[rows].max())
    # Documents with large boosts raise the score to reach, so less of the ranking has to be read.
    likely = rows
    if len(rows) > count:
        likely = rows[np.argpartition(-boosts[rows], count - 1)[:count]]
    depth = max(_FIRST, 2 * count)
    while True:
        if depth * _STEP >= len(rows):
            candidates, certified = rows, True
            break
        ranking = part.search(query, depth, offset=0, deleted=mask, mode=mode)
        certified = ranking.certified
        candidates = np.union1d(ranking.rows, likely)
        if len(ranking.rows) < depth:
            break
        found = np.sort(_scores(part, query, candidates, boosts))
        if float(ranking.scores[-1]) + most < found[-min(count, len(found))]:
            break
        if mode != "exact":
            certified = False
            break
        depth *= _STEP
    scores = _scores(part, query, candidates, boosts)
    best = np.sort(candidates[np.lexsort((candidates, -scores))[:count]])
    return _hits(part, query, best, boosts), certified


def _scores(part: Part, query: Encoded, rows: Int64, boosts: Float64) -> Float64:
    dense, lexical, bias = part.score_parts(query, rows)
    return dense + lexical + bias + boosts[rows]
