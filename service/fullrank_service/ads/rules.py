"""Which ads a page or a placement may show: one mask for each rule; the first that forbids an ad is the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fullrank_service.documents.ad import DEFAULT_CURRENCY, DEFAULT_TAXONOMY, AdError, AdTable, Mask

Reasons = npt.NDArray[np.uint8]
# Sets the ads that a rule forbids in a mask.
Rule = Callable[[Mask], None]

PAGE_REASONS = (
    "malformed",
    "status",
    "start",
    "end",
    "cur",
    "cattax",
    "bcat",
    "acat",
    "badv",
    "wseat",
    "bseat",
    "battr",
)
PLACEMENT_REASONS = ("bidfloorcur", "bidfloor")
REASONS = ("", *PAGE_REASONS, *PLACEMENT_REASONS, "per_advertiser")
"""Reasons by code; code 0: the ad may be shown."""


class Taxonomy:
    """One taxonomy, numbered as in OpenRTB's ``cattax``, given the parent by category."""

    def __init__(self, number: int, parents: Mapping[str, str]) -> None:
        self.number = number
        children: dict[str, list[str]] = {}
        for id, parent in parents.items():
            children.setdefault(parent, []).append(id)
        self._children = children
        self._below: dict[str, frozenset[str]] = {}

    @classmethod
    def read(cls, path: Path, number: int) -> Taxonomy:
        """Read lines ``id<TAB>parent``; further columns and lines without a parent are ignored. Raises AdError."""
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise AdError(str(path), f"cannot be read: {error}") from error
        parents: dict[str, str] = {}
        for place, line in enumerate(lines, 1):
            columns = [column.strip() for column in line.split("\t")]
            if not columns[0]:
                continue
            if len(columns) < 2:
                raise AdError(f"{path}:{place}", "is not id, tab, parent")
            if columns[1]:
                parents[columns[0]] = columns[1]
        for id in parents:
            above, seen = parents.get(id), {id}
            while above is not None and above not in seen:
                seen.add(above)
                above = parents.get(above)
            if above is not None:
                raise AdError(str(path), f"the category {above} is below itself")
        return cls(number, parents)

    def below(self, ids: Iterable[str]) -> set[str]:
        """Return some categories and all those below them."""
        return set().union(*(self._below.get(id) or self._follow(id) for id in ids))

    def _follow(self, id: str) -> frozenset[str]:
        """Return a category and all those below it; those with children are kept."""
        found: set[str] = set()
        waiting = [id]
        while waiting:
            found.add(last := waiting.pop())
            waiting += self._children.get(last, ())
        below = frozenset(found)
        if id in self._children:
            self._below[id] = below
        return below


@dataclass(frozen=True, slots=True)
class AdRules:
    """What a page forbids, with the names of OpenRTB's bid request; None: no such rule.

    Attributes:
        acat: The only allowed categories: an ad needs a category, and all of its categories must be allowed.
        cattax: The taxonomy of bcat and acat. If one of them is given, ads with categories of another taxonomy are left
            out.
        badv: Blocked domains of advertisers; a domain blocks those below it.
        taxonomy: The categories below bcat and acat, if its number is cattax.
        cur: The only allowed currency of prices.
    """

    bcat: frozenset[str] | None = None
    acat: frozenset[str] | None = None
    cattax: int = DEFAULT_TAXONOMY
    badv: frozenset[str] = frozenset()
    wseat: frozenset[str] | None = None
    bseat: frozenset[str] | None = None
    battr: frozenset[int] = frozenset()
    taxonomy: Taxonomy | None = None
    cur: str | None = None

    @property
    def expanded(self) -> AdRules:
        """The same rules without a taxonomy: with the categories below bcat and acat instead."""
        if self.taxonomy is None:
            return self
        bcat, acat = (None if ids is None else self._below(ids) for ids in (self.bcat, self.acat))
        return replace(self, bcat=bcat, acat=acat, taxonomy=None)

    def forbids(self, table: AdTable) -> Mask:
        """Return the ads that must not be shown on the page at any time, bool (m,), besides ``AdTable.unavailable``."""
        return _forbidden(table, self._rules(table))

    def reasons(self, table: AdTable, now: float) -> Reasons:
        """Return why each ad must not be shown at a moment: uint8 (m,), codes of ``REASONS``; 0: it may be shown."""
        unavailable = {
            "malformed": table.is_malformed,
            "status": table.is_paused,
            "start": table.start > now,
            "end": table.end <= now,
        }
        first = ((name, _setting(mask)) for name, mask in unavailable.items())
        return _first(table, chain(first, self._rules(table)))

    def _rules(self, table: AdTable) -> Iterator[tuple[str, Rule]]:
        if self.cur is not None:
            yield "cur", _setting(table.is_of_another(self.cur))
        if self.bcat or self.acat is not None:
            yield "cattax", _setting((table.taxonomy != 0) & (table.taxonomy != self.cattax))
        if self.bcat:
            yield "bcat", partial(table.categories.mark, self._categories(self.bcat))
        if self.acat is not None:
            yield "acat", _setting(~table.categories.only(self._categories(self.acat)))
        if self.badv:
            yield "badv", partial(table.domains.mark, self.badv)
        if self.wseat is not None:
            yield "wseat", _setting(~table.seats.any_of(self.wseat))
        if self.bseat:
            yield "bseat", partial(table.seats.mark, self.bseat)
        if self.battr:
            yield "battr", partial(table.attributes.mark, self.battr)

    def _categories(self, ids: frozenset[str]) -> set[object]:
        return {(self.cattax, id) for id in self._below(ids)}

    def _below(self, ids: frozenset[str]) -> frozenset[str]:
        if self.taxonomy is None or self.taxonomy.number != self.cattax:
            return ids
        return frozenset(self.taxonomy.below(ids))


@dataclass(frozen=True, slots=True)
class PriceFloor:
    """The least price of a placement, and its currency: an ad in another currency is left out."""

    price: float = 0.0
    currency: str = DEFAULT_CURRENCY

    def forbids(self, table: AdTable) -> Mask:
        """Return the ads that must not be shown in the placement, bool (m,)."""
        return _forbidden(table, self._rules(table))

    def reasons(self, table: AdTable) -> Reasons:
        """Return why ``forbids`` is true of each ad, as ``AdRules.reasons``."""
        return _first(table, self._rules(table))

    def _rules(self, table: AdTable) -> Iterator[tuple[str, Rule]]:
        yield "bidfloorcur", _setting(table.is_of_another(self.currency))
        yield "bidfloor", _setting(table.price < self.price)


def _forbidden(table: AdTable, rules: Iterable[tuple[str, Rule]]) -> Mask:
    found = np.zeros(len(table), np.bool_)
    for _, rule in rules:
        rule(found)
    return found


def _setting(forbidden: Mask) -> Rule:
    def rule(mask: Mask) -> None:
        np.logical_or(mask, forbidden, out=mask)

    return rule


def _first(table: AdTable, rules: Iterable[tuple[str, Rule]]) -> Reasons:
    found = np.zeros(len(table), np.uint8)
    before = np.zeros(len(table), np.bool_)
    for name, rule in rules:
        after = before.copy()
        rule(after)
        found[after & ~before] = REASONS.index(name)
        before = after
    return found


def sum_reasons(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Add up counts of ads that are left out, by reason, as ``count_reasons`` returns them."""
    sums = ((name, sum(one.get(name, 0) for one in counts)) for name in REASONS)
    return {name: count for name, count in sums if count}


def count_reasons(found: Sequence[Reasons]) -> dict[str, int]:
    """Count the ads that are left out, by reason, in the order of ``REASONS``."""
    counts = np.zeros(len(REASONS), np.int64)
    for reasons in found:
        counts += np.bincount(reasons, minlength=len(REASONS))
    pairs = zip(REASONS, counts.tolist(), strict=True)
    return {name: count for name, count in pairs if name and count}
