"""Rank documents: /v1/search, /v1/search:batch, /v1/match and /v1/documents/{id}/similar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.datastructures import State

from fullrank.errors import FilterError
from fullrank.events.log import places
from fullrank.filters.facets import Range
from fullrank.live.known import did_you_mean
from fullrank_service.base.errors import DocumentNotFound, Invalid
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import Documents
from fullrank_service.http.deps import Capability, PathId, ServingDep, Shared, part
from fullrank_service.http.guard import RankingRoute, needs
from fullrank_service.http.openapi import check_limits
from fullrank_service.http.problems import JsonResponse, bounded
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.serving import ALIAS, RequestModel
from fullrank_service.http.strict import parse_text
from fullrank_service.search.answers import ANSWER_HEADERS, Searches, list_content, reply_to
from fullrank_service.search.cache import EmbeddingCache, Remote
from fullrank_service.search.cursors import Cursors, cursor_of, page_of_cursor
from fullrank_service.search.ranker import Ranker
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.ruled import applying, rank_by_rules
from fullrank_service.search.schemas import (
    BatchReply,
    BatchRequest,
    SearchQuery,
    SearchReply,
    SearchRequest,
    SimilarQuery,
)
from fullrank_service.search.trying import Trying

SearchesDep = Annotated[Searches, part("search")]
router = APIRouter(prefix="/v1", tags=["search"], route_class=RankingRoute)


_RESPONSES = {200: {"headers": ANSWER_HEADERS}, **problems(400, 404, 410, 413, 415, 422, 503)}
_LINK_RESPONSES = {200: {"headers": ANSWER_HEADERS}, **problems(404, 422, 503)}


async def _search(
    asked: SearchRequest,
    serving: RequestModel,
    searches: Searches,
    max_bytes: int,
) -> JsonResponse:
    started, now = time.perf_counter(), time.time()
    page, after, model = None, None, asked.model
    if asked.cursor is not None:
        page = page_of_cursor(asked, searches.cursors, serving.serving, now)
        model, after, now = page
    view = await searches.documents.view(serving.resolve(model), asked.min_seq)
    request = RankRequest(
        asked.query,
        asked.limit,
        asked.offset if after is None else after.place,
        asked.fields,
        asked.explain,
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
    rules = searches.rules(view.bundle.name, asked.query) if asked.rules else ()
    rules = applying(rules, has_cursor=after is not None)

    async def rank(request: RankRequest) -> Ranked:
        is_tried = asked.record and asked.model in (None, ALIAS) and request.ordering is None
        is_tried = is_tried and after is None
        if searches.record is None or not is_tried:
            return await searches.ranker.rank(view, request)
        person = asked.user_id or asked.client_id or asked.session_id
        return await searches.trying.rank(serving, view, request, person, asked.min_seq)

    ranked = await rank_by_rules(rules, view, request, searches.ranker, rank)

    def best() -> dict[str, Any]:
        hits = ranked.hits
        return orjson.loads(orjson.dumps(hits[0]["fields"])) if hits else {}

    content = list_content(ranked, rules, did_you_mean(view, asked.query, best))
    reply = reply_to(searches, serving, view, request, asked, ranked, started, "search", **content)
    following = ranked.following
    if page and following and following.place <= searches.settings.max_offset:
        reply["cursor"] = cursor_of(asked, searches.cursors, view, page, following)
    return bounded(reply, max_bytes, "limit")


@router.post(
    "/search",
    response_model=SearchReply,
    responses=_RESPONSES,
    openapi_extra=needs("search"),
)
async def search(body: SearchRequest, serving: ServingDep, searches: SearchesDep) -> JsonResponse:
    """Rank the documents of a model for a query."""
    check_limits(searches.settings, body)
    return await _search(body, serving, searches, searches.settings.max_answer_bytes)


@router.get(
    "/search",
    response_model=SearchReply,
    responses=_LINK_RESPONSES,
    openapi_extra=needs("search"),
)
async def search_by_link(
    asked: Annotated[SearchQuery, Query()], serving: ServingDep, searches: SearchesDep
) -> JsonResponse:
    """Rank the documents of a model for a query, for links and browsers; the reply is that of a POST."""
    check_limits(searches.settings, asked)
    given = asked.model_dump(exclude={"q", "filter"})
    condition = None if asked.filter is None else parse_text(asked.filter, "filter")
    if not isinstance(condition, dict | None):
        raise FilterError("filter", "a filter must be an object")
    body = SearchRequest.model_validate({**given, "query": asked.q, "filter": condition})
    return await _search(body, serving, searches, searches.settings.max_answer_bytes)


@router.post(
    "/search:batch",
    response_model=BatchReply,
    responses=problems(400, 404, 410, 413, 415, 422, 503),
    openapi_extra=needs("search"),
)
async def search_batch(
    body: BatchRequest, serving: ServingDep, searches: SearchesDep
) -> JsonResponse:
    """Answer several searches in their order, from one generation: all of them or, on an error, none."""
    check_limits(searches.settings, body)
    for number, asked in enumerate(body.searches):
        with _naming(number):
            check_limits(searches.settings, asked)
    if serving.slot is not None:
        serving.slot.set_cost(len(body.searches))
    answers = []
    left = searches.settings.max_answer_bytes
    for number, asked in enumerate(body.searches):
        if number:
            await asyncio.sleep(0)  # other requests get a turn
        with _naming(number):
            answer = (await _search(asked, serving, searches, left)).body
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


@router.get(
    "/documents/{id:path}/similar",
    response_model=SearchReply,
    responses=_LINK_RESPONSES,
    openapi_extra=needs("search"),
)
async def similar_documents(
    id: PathId,
    asked: Annotated[SimilarQuery, Query()],
    serving: ServingDep,
    searches: SearchesDep,
) -> JsonResponse:
    """Rank the other documents of a model for one of its documents as the query."""
    started = time.perf_counter()
    check_limits(searches.settings, asked)
    view = await searches.documents.view(serving.resolve(asked.model), asked.min_seq)
    fields = (await searches.documents.stored(view, id)).fields
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
        max_bytes=searches.settings.max_answer_bytes,
    )
    ranked = await searches.ranker.rank(view, request)
    reply = reply_to(
        searches,
        serving,
        view,
        request,
        asked,
        ranked,
        started,
        "similar",
        **list_content(ranked),
    )
    return bounded(reply, searches.settings.max_answer_bytes, "limit")


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Searches]:
    shared: Shared = state.shared
    settings, metrics, recorder = shared.settings, shared.metrics, getattr(state, "events", None)
    cache = EmbeddingCache(
        settings.cache_entries,
        metrics,
        _remote(settings, metrics),
        max_bytes=settings.cache_mb << 20,
    )
    searched = None if state.tracing is None else state.tracing.search
    ranker = Ranker(cache, metrics, state.backend.engine, searched=searched)
    documents: Documents = state.backend.documents
    _, key = places(
        settings.bundles, settings.documents, settings.events_folder, settings.events_key
    )
    try:
        yield Searches(
            settings,
            documents,
            ranker,
            Cursors(key),
            Trying(ranker, documents, settings.explore),
            state.rules.matching,
            None if recorder is None else recorder.record,
        )
    finally:
        await ranker.close()


SEARCH = Capability("search", router.routes, _opened, router.routes)


def _remote(settings: Settings, metrics: Metrics) -> Remote | None:
    if settings.redis_url is None:
        return None
    from fullrank_service.search.redis_cache import RedisCache

    return RedisCache(
        settings.redis_url.get_secret_value(),
        metrics,
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.redis_timeout_ms / 1000,
        retry_s=settings.redis_retry_ms / 1000,
        min_chars=settings.redis_min_chars,
    )
