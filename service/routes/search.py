"""POST /v1/search, POST /v1/match and GET /v1/documents/{id}/similar."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query

from fullrank.live import View
from service.body import parse_text
from service.deps import ServicesDep, ServingDep
from service.errors import DocumentNotFound
from service.guard import Ranking, needs
from service.limits import check
from service.ranking import Ranked, Wish
from service.responses import Answer
from service.routes.documented import problems
from service.schemas import (
    DocumentId,
    MatchReply,
    MatchRequest,
    Page,
    SearchReply,
    SearchRequest,
    SimilarQuery,
)
from service.serving import Taken

router = APIRouter(prefix="/v1", tags=["search"], route_class=Ranking)


def _answer(serving: Taken, view: View, ranked: Ranked, started: float, **rest: Any) -> Answer:
    content = {
        "query_id": os.urandom(16).hex(),
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - started) * 1000, 3),
        "certified": ranked.certified,
        **rest,
    }
    return Answer(content)


def _found(serving: Taken, view: View, ranked: Ranked, started: float) -> Answer:
    found = {"total": ranked.total, "hits": ranked.hits, "facets": ranked.facets}
    return _answer(serving, view, ranked, started, **found)


@router.post(
    "/search",
    response_model=SearchReply,
    responses=problems(400, 404, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def search(body: SearchRequest, serving: ServingDep, services: ServicesDep) -> Answer:
    """Rank the documents of a model for a query."""
    started = time.perf_counter()
    check(services.settings, body)
    view = await services.live.view(serving.resolve(body.model), body.min_seq)
    wish = Wish(
        body.query,
        body.limit,
        body.offset,
        body.fields,
        body.explain,
        filter=body.filter,
        mode=body.mode,
        facets=body.facets,
        facet_limit=body.facet_limit,
    )
    return _found(serving, view, await services.ranker.rank(view, wish), started)


@router.post(
    "/match",
    response_model=MatchReply,
    responses=problems(400, 404, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def match(body: MatchRequest, serving: ServingDep, services: ServicesDep) -> Answer:
    """Fill the placements of a page with the documents that fit its text; none is placed twice.

    The first placement gets the best ones. When the documents run out, later ones stay short.
    """
    started = time.perf_counter()
    check(services.settings, body.page)
    view = await services.live.view(serving.resolve(body.model), body.min_seq)
    wish = Wish(
        page_text(view, body.page),
        sum(placement.count for placement in body.placements),
        fields=body.fields,
        exclude=body.blocked_ids,
        filter=body.targeting,
        filter_path="targeting",
    )
    ranked = await services.ranker.rank(view, wish)
    hits = iter(ranked.hits)
    filled = [
        {"id": place.id, "hits": [hit for _, hit in zip(range(place.count), hits, strict=False)]}
        for place in body.placements
    ]
    return _answer(serving, view, ranked, started, placements=filled)


@router.get(
    "/documents/{id:path}/similar",
    response_model=SearchReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search"),
)
async def similar(
    id: DocumentId,
    asked: Annotated[SimilarQuery, Query()],
    serving: ServingDep,
    services: ServicesDep,
) -> Answer:
    """Rank the other documents of a model for one of its documents."""
    started = time.perf_counter()
    check(services.settings, asked)
    view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    try:
        fields = view.fields(id)
    except KeyError:
        raise DocumentNotFound(f"{view.bundle.version} has no such document.") from None
    text = view.model.query_text(fields)
    wish = Wish(
        text,
        asked.limit,
        asked.offset,
        asked.fields,
        exclude=[id],
        filter=None if asked.filter is None else parse_text(asked.filter, "filter"),
        mode=asked.mode,
    )
    return _found(serving, view, await services.ranker.rank(view, wish), started)


def page_text(view: View, page: Page) -> str:
    """A page as the query that the model makes of a document with its title and text.

    Keywords are the page author's own summary: they stand before the text. The address is not text.
    """
    body = "\n".join(part for part in (" ".join(page.keywords), page.text) if part)
    return view.model.query_text({"title": page.title, "text": body})
