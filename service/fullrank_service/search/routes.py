"""Rank documents: /v1/search, /v1/search:batch, /v1/match and /v1/documents/{id}/similar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import APIRouter, Query

from fullrank.errors import FilterError
from fullrank.filters.facets import Range
from fullrank.live import View
from fullrank.live.known import did_you_mean
from fullrank.rules.rule import Rule
from fullrank_service.ads.matching import ads_of, filling_of, page_of, placements_of
from fullrank_service.ads.schemas import MatchReply, MatchRequest, Page
from fullrank_service.base.errors import DocumentNotFound, Invalid
from fullrank_service.events.shown import Shown
from fullrank_service.http.body import parse_text
from fullrank_service.http.deps import PathId, Services, ServicesDep, ServingDep
from fullrank_service.http.guard import RankingRoute, needs
from fullrank_service.http.headers import new_id
from fullrank_service.http.limits import check_limits, check_page
from fullrank_service.http.problems import JsonResponse, bounded
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import (
    Asked,
    BatchReply,
    BatchRequest,
    SearchQuery,
    SearchReply,
    SearchRequest,
    SimilarQuery,
)
from fullrank_service.models.serving import ALIAS, RequestModel
from fullrank_service.search.cursors import cursor_of, page_of_cursor
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.ruled import applying, rank_by_rules
from fullrank_service.search.trying import NOTHING, Tried

router = APIRouter(prefix="/v1", tags=["search"], route_class=RankingRoute)


_HEADERS: dict[str, Any] = {
    "X-Model-Version": {
        "description": "version that answered",
        "schema": {"type": "string"},
    },
    "X-Model-Generation": {
        "description": "generation that answered",
        "schema": {"type": "integer"},
    },
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"headers": _HEADERS},
    **problems(400, 404, 413, 415, 422, 503),
}
_SEARCH_RESPONSES = {**_RESPONSES, **problems(410)}


class _Answer(NamedTuple):
    """An answer whose hits are final: what is logged and sent."""

    services: Services
    serving: RequestModel
    view: View
    request: RankRequest
    asker: Asked
    ranked: Ranked
    started: float
    tried: Tried = NOTHING
    rules: Sequence[Rule] = ()
    pinned: tuple[int, ...] = ()
    did_you_mean: str | None = None
    ads: Sequence[tuple[int, str, float]] = ()


def _ranking_reply(
    answer: _Answer, kind: str, page_url: str | None = None, **content: Any
) -> dict[str, Any]:
    """Record an answer and write its reply."""
    view, ranked, serving = answer.view, answer.ranked, answer.serving
    query_id = new_id()
    if answer.services.events is not None:
        answer.services.events.record(
            Shown(
                query_id,
                time.time(),
                answer.request.text,
                [hit["id"] for hit in ranked.hits],
                kind,
                answer.request.offset,
                view.bundle.version,
                serving.generation,
                answer.request.filter,
                page_url,
                answer.asker,
                serving.headers,
                answer.tried,
                answer.pinned,
                view.bundle.manifest.model_id if answer.ads else "",
                answer.ads,
            )
        )
    return {
        "query_id": query_id,
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - answer.started) * 1000, 3),
        "certified": ranked.certified,
        "reordered": ranked.reordered,
        "covered": ranked.covered,
        "candidate": answer.tried.candidate,
        **content,
    }


def _search_reply(answer: _Answer, kind: str) -> dict[str, Any]:
    ranked = answer.ranked
    return _ranking_reply(
        answer,
        kind,
        total=ranked.total if ranked.is_total else None,
        total_at_least=None if ranked.is_total else ranked.total,
        hits=ranked.hits,
        facets=ranked.facets,
        cursor=None,
        facet_ranges=ranked.facet_ranges,
        rules=[rule.id for rule in answer.rules],
        did_you_mean=answer.did_you_mean,
    )


async def _search(
    asked: SearchRequest,
    serving: RequestModel,
    services: Services,
    max_bytes: int,
) -> JsonResponse:
    started, now = time.perf_counter(), time.time()
    page, after = None, None
    deleted: Collection[str] = ()
    if asked.cursor is None:
        view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    else:
        page = page_of_cursor(asked, services, serving.serving, now)
        after, now = page.after, page.now
        bundle = serving.resolve(page.model)
        view, deleted = await services.live.as_of(bundle, page.seq, asked.min_seq)
    request = RankRequest(
        asked.query,
        asked.limit,
        asked.offset if after is None else after.place,
        asked.fields,
        asked.explain,
        exclude=deleted,
        filter=asked.filter,
        mode=asked.mode if after is None else "exact",
        after=after,
        facets=asked.facets,
        facet_limit=asked.facet_limit,
        facet_ranges=[
            (name, [Range(one.start, one.stop) for one in ranges])
            for name, ranges in asked.facet_ranges.items()
        ],
        min_score=asked.min_score,
        ordering=asked.ordering(now),
        highlight=None if asked.highlight is None else asked.highlight.asked,
        by_prefix=asked.prefix == "last",
        match=asked.match,
        is_partial=asked.partial,
        max_bytes=max_bytes,
    )
    rules = services.rules.matching(view.bundle.name, asked.query) if asked.rules else ()
    rules = applying(rules, has_cursor=after is not None)

    async def rank(request: RankRequest) -> tuple[Ranked, Tried]:
        is_tried = asked.record and asked.model in (None, ALIAS) and request.ordering is None
        is_tried = is_tried and after is None
        if services.events is None or not is_tried:
            return await services.ranker.rank(view, request), NOTHING
        person = asked.user_id or asked.client_id or asked.session_id
        return await services.trying.rank(serving, view, request, person, asked.min_seq)

    found = await rank_by_rules(rules, view, request, services.ranker, rank)

    def best() -> dict[str, Any]:
        hits = found.ranked.hits
        return orjson.loads(orjson.dumps(hits[0]["fields"])) if hits else {}

    answer = _Answer(
        services,
        serving,
        view,
        request,
        asked,
        found.ranked,
        started,
        found.tried,
        rules,
        found.pinned,
        did_you_mean(view, asked.query, best),
    )
    reply = _search_reply(answer, "search")
    following = found.ranked.following
    if page and following and following.place <= services.settings.max_offset:
        reply["cursor"] = cursor_of(asked, services, view, page, following)
    return bounded(reply, max_bytes, "limit")


@router.post(
    "/search",
    response_model=SearchReply,
    responses=_SEARCH_RESPONSES,
    openapi_extra=needs("search"),
)
async def search(body: SearchRequest, serving: ServingDep, services: ServicesDep) -> JsonResponse:
    """Rank the documents of a model for a query."""
    check_limits(services.settings, body)
    return await _search(body, serving, services, services.settings.max_answer_bytes)


@router.get(
    "/search",
    response_model=SearchReply,
    responses={200: {"headers": _HEADERS}, **problems(404, 422, 503)},
    openapi_extra=needs("search"),
)
async def search_by_link(
    asked: Annotated[SearchQuery, Query()], serving: ServingDep, services: ServicesDep
) -> JsonResponse:
    """Rank the documents of a model for a query, for links and browsers; the reply is that of a POST."""
    check_limits(services.settings, asked)
    given = asked.model_dump(exclude={"q", "filter"})
    condition = None if asked.filter is None else parse_text(asked.filter, "filter")
    if not isinstance(condition, dict | None):
        raise FilterError("filter", "a filter must be an object")
    body = SearchRequest.model_validate({**given, "query": asked.q, "filter": condition})
    return await _search(body, serving, services, services.settings.max_answer_bytes)


@router.post(
    "/search:batch",
    response_model=BatchReply,
    responses=problems(400, 404, 410, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def search_batch(
    body: BatchRequest, serving: ServingDep, services: ServicesDep
) -> JsonResponse:
    """Answer several searches in their order, from one generation: all of them or, on an error, none."""
    check_limits(services.settings, body)
    for number, asked in enumerate(body.searches):
        with _naming(number):
            check_limits(services.settings, asked)
    if serving.slot is not None:
        serving.slot.set_cost(len(body.searches))
    answers = []
    left = services.settings.max_answer_bytes
    for number, asked in enumerate(body.searches):
        if number:
            await asyncio.sleep(0)  # other requests get a turn
        with _naming(number):
            answer = (await _search(asked, serving, services, left)).body
        left -= len(answer)
        answers.append(orjson.Fragment(bytes(answer)))
    return JsonResponse({"generation": serving.generation, "answers": answers})


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Put the search of a batch before the fields of its errors."""
    prefix = f"searches.{number}."
    try:
        yield
    except FilterError as error:
        raise FilterError(prefix + error.path, error.reason) from None
    except Invalid as error:
        error.errors = [{**one, "field": prefix + one["field"]} for one in error.errors or ()]
        raise


@router.post(
    "/match",
    response_model=MatchReply,
    responses={**_RESPONSES, **problems(409)},
    openapi_extra=needs("search"),
)
async def match(body: MatchRequest, serving: ServingDep, services: ServicesDep) -> JsonResponse:
    """Fill the placements of a page with the documents that match its text, each at most once.

    The first placement gets the best ones. If there are too few documents, the last placements get fewer. Ads obey the
    rules of the page; documents without an ad are placed as they rank.
    """
    started = time.perf_counter()
    await check_page(services.settings, body.page)
    view = await services.live.view(serving.resolve(body.model), body.min_seq)
    may_write = services.access.permits(serving.headers, "ingest")
    request = RankRequest(
        page_text(view, await page_of(body, services.ads.pages, may_write=may_write)),
        sum(placement.count for placement in body.placements),
        fields=body.fields,
        explain=body.explain,
        exclude=body.blocked_ids,
        filter=body.targeting,
        filter_path="targeting",
        is_document=True,
        filling=filling_of(body, view, services.ads, services.usage),
        max_bytes=services.settings.max_answer_bytes,
    )
    ranked = await services.ranker.rank(view, request)
    ads = ads_of(body, ranked)
    answer = _Answer(services, serving, view, request, body, ranked, started, ads=ads)
    content = placements_of(body, ranked)
    reply = _ranking_reply(answer, "match", body.page.url or None, **content)
    return bounded(reply, services.settings.max_answer_bytes, "placements")


@router.get(
    "/documents/{id:path}/similar",
    response_model=SearchReply,
    responses={200: {"headers": _HEADERS}, **problems(404, 422, 503)},
    openapi_extra=needs("search"),
)
async def similar_documents(
    id: PathId,
    asked: Annotated[SimilarQuery, Query()],
    serving: ServingDep,
    services: ServicesDep,
) -> JsonResponse:
    """Rank the other documents of a model for one of its documents as the query."""
    started = time.perf_counter()
    check_limits(services.settings, asked)
    view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    fields = (await services.live.stored(view, id)).fields
    if fields is None:
        raise DocumentNotFound(f"The model {view.bundle.version} has no document {id!r}.")
    text = view.model.query_text(fields)
    request = RankRequest(
        text,
        asked.limit,
        asked.offset,
        asked.fields,
        exclude=[id],
        filter=None if asked.filter is None else parse_text(asked.filter, "filter"),
        mode=asked.mode,
        is_document=True,
        max_bytes=services.settings.max_answer_bytes,
    )
    ranked = await services.ranker.rank(view, request)
    answer = _Answer(services, serving, view, request, asked, ranked, started)
    return bounded(_search_reply(answer, "similar"), services.settings.max_answer_bytes, "limit")


def page_text(view: View, page: Page) -> str:
    """Give the query text of a page, as the model makes it from a document with the same title and text.

    Keywords come before the text, because they are the author's summary. The address is not used.
    """
    body = "\n".join(part for part in (" ".join(page.keywords), page.text) if part)
    return view.model.query_text({"title": page.title, "text": body})
