"""Bring texts of pages: /v1/pages."""

from __future__ import annotations

from logging import getLogger

from fastapi import APIRouter

from fullrank_service.ads.pages import Content, PagesError, address
from fullrank_service.ads.schemas import KnownPage, PageReply
from fullrank_service.base.errors import PagesUnavailable
from fullrank_service.http.deps import ServicesDep
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.limits import check_page
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems

router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)
_log = getLogger(__name__)


@router.put(
    "/pages",
    response_model=PageReply,
    responses=problems(400, 413, 415, 422, 503),
    openapi_extra=needs("ingest"),
)
async def put_page(body: KnownPage, services: ServicesDep) -> JsonResponse:
    """Keep the text of a page, so that a match can name the page by its URL alone."""
    await check_page(services.settings, body)
    try:
        await services.ads.pages.put(body.url, Content(body.title, body.text, tuple(body.keywords)))
    except PagesError as error:
        _log.error("a page cannot be kept: %s", error)
        raise PagesUnavailable from None
    return JsonResponse({"url": address(body.url)})
