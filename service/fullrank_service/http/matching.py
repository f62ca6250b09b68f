"""Between /v1/match and the filling of placements."""

from __future__ import annotations

import time
from itertools import chain, islice, repeat
from logging import getLogger
from typing import Any

from fullrank.ads import AdRules, PriceFloor
from fullrank.ads.ad import DEFAULT_CURRENCY
from fullrank.bundle import Bundle
from fullrank.live import View
from fullrank_service.ads.calibrations import MIN_CLICKS
from fullrank_service.ads.eligible import has_caps
from fullrank_service.ads.events import AdEvents
from fullrank_service.ads.filling import PageFilling
from fullrank_service.ads.pages import Pages, PagesError
from fullrank_service.ads.placing import Slot
from fullrank_service.ads.services import AdServices
from fullrank_service.ads.tokens import Placed
from fullrank_service.ads.valuing import Valuation
from fullrank_service.errors import PagesUnavailable, PageUnknown, TooFewClicks
from fullrank_service.http.match_schemas import MatchRequest, Page, Placement
from fullrank_service.search.request import Ranked

_log = getLogger(__name__)


async def filling_of(body: MatchRequest, view: View, ads: AdServices) -> PageFilling:
    """Return what a request asks for. Raises EventsUnavailable, TooFewClicks."""
    seen: dict[str, int] = {}
    if ads.events is not None and has_caps(view):
        who = body.user_id or body.client_id or body.session_id
        seen = await ads.events.seen(view.bundle.name, who)
    rules = AdRules(
        None if body.bcat is None else frozenset(body.bcat),
        None if body.acat is None else frozenset(body.acat),
        body.cattax,
        frozenset(body.badv),
        None if body.wseat is None else frozenset(body.wseat),
        None if body.bseat is None else frozenset(body.bseat),
        frozenset(body.battr),
        ads.taxonomy,
        body.cur,
    )
    slots = [
        Slot(one.count, _floor(one, body.cur), one.min_score, one.id) for one in body.placements
    ]
    spending = None if ads.events is None else ads.events.spending
    return PageFilling(
        slots,
        rules,
        time.time(),
        body.per_advertiser,
        body.explain,
        spending,
        seen,
        ads.masks,
        _valuation(view, ads.events) if body.rank == "value" else None,
    )


async def page_of(body: MatchRequest, pages: Pages, *, may_write: bool) -> Page:
    """Return the page of a request, with the text that is kept for its URL if the request has none.

    Args:
        body: The request.
        pages: The texts.
        may_write: Keep the text of the request, unless it is not to be recorded.

    Raises:
        PageUnknown: No text is kept.
    """
    page = body.page
    if not page.url:
        return page
    try:
        if page.has_text:
            if may_write and body.record:
                pages.note(page.url, page.title, page.text, page.keywords)
            return page
        found = await pages.get(page.url)
    except PagesError as error:
        _log.error("a page cannot be read: %s", error)
        raise PagesUnavailable from None
    if found is None:
        raise PageUnknown(errors=[{"field": "body.page.url", "reason": "no text is kept for it"}])
    return Page(url=page.url, title=found.title, text=found.text, keywords=list(found.keywords))


def placements_of(
    body: MatchRequest, ranked: Ranked, bundle: Bundle, events: AdEvents | None
) -> dict[str, Any]:
    """Return the filled placements and the counts of ads left out, for the reply.

    Args:
        body: The request.
        ranked: Its answer.
        bundle: That ranked it.
        events: Signs tokens of ads; None: hits have no tokens.
    """
    filled = ranked.filled
    assert filled is not None
    who = body.user_id or body.client_id or body.session_id
    places = chain.from_iterable(
        repeat(placement.id, count)
        for placement, count in zip(body.placements, filled.counts, strict=True)
    )
    placed = []
    values = filled.values if body.explain and filled.values else repeat(None)
    for hit, ad, place, value in zip(ranked.hits, filled.ads, places, values, strict=False):
        hit["token"] = hit["value"] = None
        if ad is not None:
            placed.append((hit, Placed(hit["id"], ad.price, hit["score"], place)))
            hit["value"] = None if value is None else value.json()
    if events is not None and placed:
        ads = [ad for _, ad in placed]
        tokens = events.tokens(bundle.name, bundle.manifest.model_id, who, ads)
        for (hit, _), token in zip(placed, tokens, strict=True):
            hit["token"] = token
    hits = iter(ranked.hits)
    placements = [
        {
            "id": placement.id,
            "hits": list(islice(hits, count)),
            "left_out": left_out if body.explain else None,
        }
        for placement, count, left_out in zip(
            body.placements, filled.counts, filled.left_out_of, strict=True
        )
    ]
    left_out = filled.left_out if body.explain else None
    return {"rank": body.rank, "placements": placements, "left_out": left_out}


def _valuation(view: View, events: AdEvents | None) -> Valuation:
    """Return what ranks by value. Raises TooFewClicks."""
    collection, model = view.bundle.name, view.bundle.manifest.model_id
    if events is None:
        raise TooFewClicks("Ads are ranked by value from counted clicks, and events are off.")
    found = events.calibrations.of(collection, model)
    if found is None:
        clicks = events.calibrations.clicks(collection, model)
        raise TooFewClicks(
            f"{clicks} clicks on ads that the model of {view.bundle.version} placed are counted; "
            f"ranking by value needs {MIN_CLICKS}. Rank by relevance until then."
        )
    return Valuation(found)


def _floor(placement: Placement, cur: str | None) -> PriceFloor | None:
    if placement.bidfloor is None and placement.bidfloorcur is None:
        return None
    return PriceFloor(placement.bidfloor or 0.0, placement.bidfloorcur or cur or DEFAULT_CURRENCY)
