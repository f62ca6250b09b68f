"""Place ads and other documents on pages: /v1/match; bring texts of pages: /v1/pages."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from logging import getLogger
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.datastructures import State

from fullrank.live import View
from fullrank.replies import MatchReply
from fullrank_service.ads.filling import PageFilling, RuleMasks
from fullrank_service.ads.pages import FILE, Content, Pages, PagesError, address
from fullrank_service.ads.placing import Slot
from fullrank_service.ads.rules import AdRules, PriceFloor, Taxonomy
from fullrank_service.ads.schemas import (
    KnownPage,
    MatchRequest,
    Page,
    PageReply,
    Placement,
)
from fullrank_service.base.errors import PagesUnavailable, PageUnknown, TooFewClicks
from fullrank_service.base.settings import Settings
from fullrank_service.completion.calibrations import MIN_CLICKS, Calibration
from fullrank_service.completion.usage import Usage
from fullrank_service.documents.ad import DEFAULT_CURRENCY
from fullrank_service.documents.sqlitelog import log_file
from fullrank_service.http.access import Access
from fullrank_service.http.deps import Capability, ServingDep, Shared, SharedDep, part
from fullrank_service.http.guard import GuardedRoute, RankingRoute, needs
from fullrank_service.http.openapi import check_limits
from fullrank_service.http.problems import JsonResponse, bounded
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.routes import ANSWER_HEADERS, Searches, reply_to
from fullrank_service.search.schemas import SearchRequest

# In characters. Counting the words of 200,000 takes up to a second, so longer pages are checked on a thread.
_SHORT_PAGE = 1_000
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ads:
    """What a worker has for ads: the operator's taxonomy, the texts of pages, and what rules forbid."""

    taxonomy: Taxonomy | None
    pages: Pages
    access: Access
    searches: Searches
    usage: Usage
    masks: RuleMasks = field(default_factory=RuleMasks)

    @classmethod
    def from_settings(
        cls, settings: Settings, access: Access, searches: Searches, usage: Usage
    ) -> Ads:
        """Open what the settings describe. Raises AdError."""
        taxonomy = None
        if settings.ad_taxonomy is not None:
            taxonomy = Taxonomy.read(settings.ad_taxonomy, settings.ad_taxonomy_number)
        pages = Pages(log_file(settings).with_name(FILE), settings.pages_mb << 20)
        return cls(taxonomy, pages, access, searches, usage)


async def check_page(settings: Settings, page: Page) -> None:
    """Check the limits of a page, on a thread if that can take long. Raises Invalid."""
    if page.text.isascii() or len(page.text) < _SHORT_PAGE:
        check_limits(settings, page)
    else:
        await to_thread(check_limits, settings, page)


def filling_of(body: MatchRequest, view: View, ads: Ads) -> PageFilling:
    """Return what a request asks for. Raises TooFewClicks."""
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
    return PageFilling(
        slots,
        rules,
        time.time(),
        body.per_advertiser,
        body.explain,
        ads.masks,
        _calibration(view, ads.usage) if body.rank == "value" else None,
    )


async def page_of(body: MatchRequest, pages: Pages, *, may_write: bool) -> Page:
    """Return the page of a request, with the text that is kept for its URL if it has none. Raises PageUnknown."""
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


def page_text(view: View, page: Page) -> str:
    """Give the query text of a page, as the model makes it from a document with the same title and text.

    Keywords come before the text, because they are the author's summary. The address is not used.
    """
    body = "\n".join(part for part in (" ".join(page.keywords), page.text) if part)
    return view.model.query_text({"title": page.title, "text": body})


def placements_of(body: MatchRequest, ranked: Ranked) -> dict[str, Any]:
    """Return the filled placements and the counts of ads left out, for the reply."""
    filled = ranked.filled
    assert filled is not None
    values = filled.values if body.explain and filled.values else [None] * len(ranked.hits)
    for hit, ad, value in zip(ranked.hits, filled.ads, values, strict=True):
        hit["value"] = None if ad is None or value is None else value.json()
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


def served_ads(body: MatchRequest, ranked: Ranked) -> list[tuple[int, str, float]]:
    """Return the ads of an answer as ``fullrank.events.records.ServedList`` has them."""
    filled = ranked.filled
    assert filled is not None
    placements = chain.from_iterable(
        repeat(placement.id, count)
        for placement, count in zip(body.placements, filled.counts, strict=True)
    )
    hits = enumerate(zip(ranked.hits, filled.ads, placements, strict=True))
    return [(i, placement, hit["score"]) for i, (hit, ad, placement) in hits if ad is not None]


def _calibration(view: View, usage: Usage) -> Calibration:
    found = usage.on_ads(view.bundle.name, view.bundle.manifest.model_id)
    if found.calibration is None:
        raise TooFewClicks(
            f"The log of events has {found.clicks} clicks on ads that the model of {view.bundle.version} placed; "
            f"ranking by value needs {MIN_CLICKS}. Rank by relevance until then."
        )
    return found.calibration


def _floor(placement: Placement, cur: str | None) -> PriceFloor | None:
    if placement.bidfloor is None and placement.bidfloorcur is None:
        return None
    return PriceFloor(placement.bidfloor or 0.0, placement.bidfloorcur or cur or DEFAULT_CURRENCY)


AdsDep = Annotated[Ads, part("ads")]


class MatchRoute(RankingRoute):
    """A ranking route that places ads."""

    capability = "ads"


router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)
ranking = APIRouter(prefix="/v1", tags=["search"], route_class=MatchRoute)


@ranking.post(
    "/match",
    response_model=MatchReply,
    responses={200: {"headers": ANSWER_HEADERS}, **problems(400, 404, 409, 413, 415, 422, 503)},
    openapi_extra=needs("search", "collections"),
)
async def match(body: MatchRequest, serving: ServingDep, ads: AdsDep) -> JsonResponse:
    """Fill the placements of a page with the documents that match its text, each at most once.

    The first placement gets the best ones. If there are too few documents, the last placements get fewer. Ads obey the
    rules of the page; documents without an ad are placed as they rank.
    """
    started = time.perf_counter()
    searches, settings = ads.searches, ads.searches.settings
    await check_page(settings, body.page)
    view = await searches.documents.view(serving.resolve(body.model), body.min_seq)
    # All collections share the texts of pages, so a bound key writes none.
    may_write = serving.key is None and ads.access.permits(serving.headers, "ingest")
    text = page_text(view, await page_of(body, ads.pages, may_write=may_write))
    request = RankRequest(
        SearchRequest.model_construct(
            query=text, fields=body.fields, explain=body.explain, filter=body.targeting,
            match="any", prefix="none",
        ),
        sum(placement.count for placement in body.placements),
        exclude=body.blocked_ids,
        filter_path="targeting",
        is_document=True,
        filling=filling_of(body, view, ads),
        max_bytes=settings.max_answer_bytes,
    )  # fmt: skip
    ranked = await searches.ranker.rank(view, request)
    served = served_ads(body, ranked)
    reply = reply_to(
        searches,
        serving,
        view,
        request,
        body,
        ranked,
        started,
        "match",
        page_url=body.page.url or None,
        ads=served,
        **placements_of(body, ranked),
    )
    return bounded(reply, settings.max_answer_bytes, "placements")


@router.put(
    "/pages",
    response_model=PageReply,
    responses=problems(400, 413, 415, 422, 503),
    openapi_extra=needs("ingest"),
)
async def put_page(body: KnownPage, shared: SharedDep, ads: AdsDep) -> JsonResponse:
    """Keep the text of a page, so that a match can name the page by its URL alone."""
    await check_page(shared.settings, body)
    try:
        await ads.pages.put(body.url, Content(body.title, body.text, tuple(body.keywords)))
    except PagesError as error:
        _log.error("a page cannot be kept: %s", error)
        raise PagesUnavailable from None
    return JsonResponse({"url": address(body.url)})


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Ads]:
    shared: Shared = state.shared
    ads = Ads.from_settings(shared.settings, shared.access, state.search, state.completion)
    try:
        yield ads
    finally:
        await ads.pages.close()


ADS = Capability("ads", [*ranking.routes, *router.routes], _opened, ranking.routes)
