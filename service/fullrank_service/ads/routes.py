"""Place ads and other documents on pages: /v1/match; bring texts of pages: /v1/pages."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Annotated

from fastapi import APIRouter
from starlette.datastructures import State

from fullrank_service.ads.matching import (
    Ads,
    check_page,
    filling_of,
    page_of,
    page_text,
    placements_of,
    served_ads,
)
from fullrank_service.ads.pages import Content, PagesError, address
from fullrank_service.ads.schemas import KnownPage, MatchReply, MatchRequest, PageReply
from fullrank_service.base.errors import PagesUnavailable
from fullrank_service.http.deps import Capability, ServingDep, Shared, SharedDep, part
from fullrank_service.http.guard import GuardedRoute, RankingRoute, needs
from fullrank_service.http.problems import JsonResponse, bounded
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.search.answers import ANSWER_HEADERS, reply_to
from fullrank_service.search.request import RankRequest

AdsDep = Annotated[Ads, part("ads")]
_log = getLogger(__name__)


class MatchRoute(RankingRoute):
    """A ranking route that places ads."""

    capability = "ads"


router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)
ranking = APIRouter(prefix="/v1", tags=["search"], route_class=MatchRoute)


@ranking.post(
    "/match",
    response_model=MatchReply,
    responses={200: {"headers": ANSWER_HEADERS}, **problems(400, 404, 409, 413, 415, 422, 503)},
    openapi_extra=needs("search"),
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
    may_write = ads.access.permits(serving.headers, "ingest")
    request = RankRequest(
        page_text(view, await page_of(body, ads.pages, may_write=may_write)),
        sum(placement.count for placement in body.placements),
        fields=body.fields,
        explain=body.explain,
        exclude=body.blocked_ids,
        filter=body.targeting,
        filter_path="targeting",
        is_document=True,
        filling=filling_of(body, view, ads),
        max_bytes=settings.max_answer_bytes,
    )
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
