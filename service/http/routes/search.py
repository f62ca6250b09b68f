"""POST /v1/search, POST /v1/search:batch, POST /v1/match and GET /v1/documents/{id}/similar."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query

from fullrank.live import View
from service.edge.body import parse_text
from service.edge.guard import Ranking, needs
from service.errors import DocumentNotFound
from service.http.deps import PathId, Services, ServicesDep, ServingDep
from service.http.limits import check
from service.http.responses import Answer
from service.http.schemas import (
    BatchReply,
    BatchRequest,
    MatchReply,
    MatchRequest,
    Page,
    SearchReply,
    SearchRequest,
    SimilarQuery,
)
from service.models.serving import Taken
from service.routes.documented import problems
from service.search.ranker import Ranked, Wish

router = APIRouter(prefix="/v1", tags=["search"], route_class=Ranking)


def _content(
    serving: Taken, view: View, ranked: Ranked, started: float, **rest: Any
) -> dict[str, Any]:
    return {
        "query_id": os.urandom(16).hex(),
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - started) * 1000, 3),
        "certified": ranked.certified,
        **rest,
    }


def _found(serving: Taken, view: View, ranked: Ranked, started: float) -> dict[str, Any]:
    found = {"total": ranked.total, "hits": ranked.hits, "facets": ranked.facets}
    return _content(serving, view, ranked, started, **found)


async def _searched(
    asked: SearchRequest, serving: Taken, services: Services, filter_path: str = "filter"
) -> dict[str, Any]:
    started = time.perf_counter()
    view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    wish = Wish(
        asked.query,
        asked.limit,
        asked.offset,
        asked.fields,
        asked.explain,
        filter=asked.filter,
        filter_path=filter_path,
        mode=asked.mode,
        facets=asked.facets,
        facet_limit=asked.facet_limit,
    )
    return _found(serving, view, await services.ranker.rank(view, wish), started)


@router.post(
    "/search",
    response_model=SearchReply,
    responses=problems(400, 404, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def search(body: SearchRequest, serving: ServingDep, services: ServicesDep) -> Answer:
    """Rank the documents of a model for a query."""
    check(services.settings, body)
    return Answer(await _searched(body, serving, services))


@router.post(
    "/search:batch",
    response_model=BatchReply,
    responses=problems(400, 404, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def batch(body: BatchRequest, serving: ServingDep, services: ServicesDep) -> Answer:
    """Several searches, answered in their order by one generation: all of them or, on an error, none."""
    check(services.settings, body)
    for place, asked in enumerate(body.searches):
        check(services.settings, asked, f"searches.{place}.")
    if serving.slot is not None:
        serving.slot.weigh(len(body.searches))
    answers = []
    for place, asked in enumerate(body.searches):
        if place:
            await asyncio.sleep(0)  # others have their turn in between
        answers.append(await _searched(asked, serving, services, f"searches.{place}.filter"))
    return Answer({"generation": serving.generation, "answers": answers})


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
    return Answer(_content(serving, view, ranked, started, placements=filled))


@router.get(
    "/documents/{id:path}/similar",
    response_model=SearchReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search"),
)
async def similar(
    id: PathId,
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
    return Answer(_found(serving, view, await services.ranker.rank(view, wish), started))


def page_text(view: View, page: Page) -> str:
    """A page as the query that the model makes of a document with its title and text.

    Keywords are the page author's own summary: they stand before the text. The address is not text.
    """
    body = "\n".join(part for part in (" ".join(page.keywords), page.text) if part)
    return view.model.query_text({"title": page.title, "text": body})
