"""Which ads of a view a page may show, as masks over its documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from fullrank.ads import Ad, AdRules, AdTable, PriceFloor
from fullrank.ads.rules import REASONS, Reasons, count_reasons
from fullrank.ads.table import Mask
from fullrank.live import View
from fullrank.live.hits import LiveHit
from fullrank.live.part import Part
from fullrank_service.ads.ledger import Ledger
from fullrank_service.ads.masks import RuleMasks

_PER_ADVERTISER = REASONS.index("per_advertiser")


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides whether an ad may be on a page, whatever else is there.

    Attributes:
        rules: Which ads the page forbids.
        now: Seconds since 1970.
        seen: How often the person has seen ads, by their ids.
    """

    rules: AdRules
    now: float
    seen: Mapping[str, int] = field(default_factory=dict)


class Eligible:
    """The documents of a view that may be on one page.

    Args:
        view: The documents.
        deleted: Documents that must not be placed, as ``View.deleted`` returns them.
        conditions: Of the page.
        ledger: What ads have spent; None: budgets are not looked at.
        masks: What rules forbid; shared by all pages.
    """

    def __init__(
        self,
        view: View,
        deleted: Sequence[Mask | None],
        conditions: Conditions,
        ledger: Ledger | None,
        masks: RuleMasks,
    ) -> None:
        self._view, self._parts, self._deleted = view, view.parts, deleted
        self._conditions, self._ledger, self._masks = conditions, ledger, masks
        self._number = {id(part): i for i, part in enumerate(view.parts)}
        # Ads that no placement can have now, whatever the rules of the page are.
        self._unavailable = [self._unavailable_ads(part) for part in view.parts]

    def excluding(
        self, placed: Collection[str], full: Collection[str], floor: PriceFloor | None
    ) -> list[Mask | None]:
        """Return the documents that a placement cannot have now, as ``View.deleted`` does.

        Args:
            placed: Ids of documents that are on the page; unknown ids are ignored.
            full: Domains of advertisers without a free place.
            floor: Of the placement.
        """
        found: list[Mask | None] = []
        hidden = self._hidden(placed)
        for part, mask, now in zip(self._parts, hidden, self._unavailable, strict=True):
            forbidden = self._masks.forbidden(part, self._conditions.rules, floor)
            if forbidden is None or now is None or part.ads is None:
                found.append(mask)
                continue
            documents = forbidden | now
            part.ads.advertisers.mark(full, documents)
            if len(documents) < len(part):
                documents = _spread(documents, part.ads, len(part))
            found.append(documents if mask is None else documents | mask)
        return found

    def dearest(self, excluded: Sequence[Mask | None]) -> float:
        """Return the highest price of an ad that is not excluded; 0 without ads."""
        prices = [
            float(part.ads.price.max(where=~mask[part.ads.rows], initial=0.0))
            for part, mask in zip(self._parts, excluded, strict=True)
            if part.ads is not None and mask is not None
        ]
        return max(prices, default=0.0)

    def left_out(self, placed: Collection[str], full: Collection[str]) -> dict[str, int]:
        """Count the ads that a page leaves out, each by its first reason; arguments as of ``excluding``."""
        on_page = set(self._rows(placed))
        found = []
        for number, ads, candidates, reasons in self._reasons():
            is_full = ads.advertisers.any_of(full)
            for place in np.flatnonzero(is_full & (reasons == 0)).tolist():
                if (number, int(ads.rows[place])) not in on_page:
                    reasons[place] = _PER_ADVERTISER
            found.append(reasons[candidates])
        return count_reasons(found)

    def left_out_of(self, floor: PriceFloor | None) -> dict[str, int]:
        """Count the ads that a placement leaves out and the page does not."""
        if floor is None:
            return {}
        return count_reasons(
            [
                floor.reasons(ads)[candidates & (reasons == 0)]
                for _, ads, candidates, reasons in self._reasons()
            ]
        )

    def _rows(self, ids: Collection[str]) -> Iterator[tuple[int, int]]:
        """Yield the number of the part and the row of documents."""
        for one in ids:
            with suppress(KeyError):
                part, row = self._view.find(one)
                yield self._number[id(part)], row

    def _hidden(self, placed: Collection[str]) -> list[Mask | None]:
        """Return the documents that must not be placed, with those that are on the page."""
        rows: dict[int, list[int]] = {}
        for number, row in self._rows(placed):
            rows.setdefault(number, []).append(row)
        found = list(self._deleted)
        for number, own in rows.items():
            old = found[number]
            mask = np.zeros(len(self._parts[number]), np.bool_) if old is None else old.copy()
            mask[own] = True
            found[number] = mask
        return found

    def _unavailable_ads(self, part: Part) -> Mask | None:
        if part.ads is None:
            return None
        used_up = self._used_up(part, part.ads)
        found = part.ads.unavailable(self._conditions.now)
        for mask in used_up.values():
            found = found | mask
        return found

    def _used_up(self, part: Part, ads: AdTable) -> dict[str, Mask]:
        """Return the ads that have spent their budget, and those that the person has seen often enough, by reason."""
        found: dict[str, Mask] = {}
        if self._ledger is not None:
            over = self._ledger.over(self._view.bundle.name, part, self._conditions.now)
            if over is not None:
                found["budget"] = over
        for one, count in self._conditions.seen.items():
            row = part.row(one)
            ad = None if row is None else ads.ad(row)
            if ad is not None and ad.cap is not None and count >= ad.cap.count:
                mask = ads.rows == row
                found["cap"] = mask | found["cap"] if "cap" in found else mask
        return found

    def _reasons(self) -> Iterator[tuple[int, AdTable, Mask, Reasons]]:
        """Yield for each part with ads: its number, the ads, those that the filters let through, their reasons."""
        rules, now = self._conditions.rules, self._conditions.now
        for number, (part, mask) in enumerate(zip(self._parts, self._deleted, strict=True)):
            if part.ads is not None:
                ads = part.ads
                kept = np.ones(len(ads), np.bool_) if mask is None else ~mask[ads.rows]
                reasons = rules.reasons(ads, now)
                for name, used in self._used_up(part, ads).items():
                    code = REASONS.index(name)
                    reasons[used & ((reasons == 0) | (reasons > code))] = code
                yield number, ads, kept, reasons


def has_ads(view: View) -> bool:
    """Return whether a document of a view may have an ad."""
    return view.bundle.has_ads or any(part.ads is not None for part in view.added)


def has_caps(view: View) -> bool:
    """Return whether an ad of a view may have a cap."""
    tables = [part.ads for part in view.added]
    return view.bundle.has_capped_ads or any(ads is not None and ads.has_caps for ads in tables)


def ads_of(hits: Sequence[LiveHit]) -> list[Ad | None]:
    """Return the ad of each hit; None: the document has no ad."""
    return [None if hit.part.ads is None else hit.part.ads.ad(hit.row) for hit in hits]


def _spread(mask: Mask, ads: AdTable, count: int) -> Mask:
    """Return the documents whose ads are in a mask, bool (count,)."""
    documents = np.zeros(count, np.bool_)
    documents[ads.rows] = mask
    return documents
