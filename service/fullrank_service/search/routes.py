"""Rank documents: /v1/search, /v1/search:batch and /v1/documents/{id}/similar."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from binascii import Error
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import APIRouter, Query
from starlette.datastructures import State

from fullrank.errors import FilterError
from fullrank.events.log import KeyDamaged, key_for, places, read_key
from fullrank.events.records import ServedList
from fullrank.filters.query import parse_filter
from fullrank.live import View
from fullrank.replies import BatchReply, SearchReply
from fullrank.search.ordering import Ordering
from fullrank.search.rules.rule import Rule
from fullrank_service.base.errors import CursorExpired, DocumentNotFound, Internal, Invalid
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import Documents
from fullrank_service.events.shown import Shown
from fullrank_service.http.deps import (
    ALIAS,
    Capability,
    PathId,
    RequestModel,
    Serving,
    ServingDep,
    Shared,
    part,
)
from fullrank_service.http.guard import RankingRoute, needs
from fullrank_service.http.openapi import check_limits
from fullrank_service.http.problems import JsonResponse, bounded, new_id
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.strict import parse_text
from fullrank_service.search.cache import EmbeddingCache, Remote
from fullrank_service.search.ranking import Ranker
from fullrank_service.search.request import After, Ranked, RankRequest
from fullrank_service.search.restricting import without
from fullrank_service.search.ruled import Trying, applying, rank_by_rules
from fullrank_service.search.schemas import (
    Asked,
    BatchRequest,
    SearchQuery,
    SearchRequest,
    SimilarQuery,
)

FIRST = "*"
"""Asks for the first page."""
_SIGNATURE_BYTES = 16


class Cursor(NamedTuple):
    """Where a page begins, in the ranking of one version; `now` is the time that boosts count from."""

    version: str
    search: str
    now: float
    score: float
    id: str
    place: int

    @property
    def after(self) -> After:
        return After(self.score, self.id, self.place)


def fingerprint(search: Any) -> str:
    """Hash the fields of a search that decide its order, given as JSON."""
    return blake2b(orjson.dumps(search, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


class Cursors:
    """Writes and reads cursors; the file of the key is created if missing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _key(self) -> bytes:
        try:
            return key_for(read_key(self._path), b"cursors of searches")
        except KeyDamaged as error:
            raise Internal(f"{error}.") from None

    def text(self, cursor: Cursor) -> str:
        content = orjson.dumps([*cursor])
        return f"{_text(content)}.{_text(self._sign(content))}"

    def read(self, text: str) -> Cursor:
        """Read a cursor. Raises Invalid if this service has not written it."""
        try:
            content, signature = (_bytes(part) for part in text.split("."))
        except (ValueError, Error):
            content, signature = b"", b""
        if not hmac.compare_digest(self._sign(content), signature):
            reason = 'is no cursor of this service; "*" asks for the first page'
            raise Invalid(errors=[{"field": "cursor", "reason": reason}])
        return Cursor(*orjson.loads(content))

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)


# The fields that may differ between the pages of a list, because they change neither its documents nor their order.
# Those that page_of_cursor refuses are among them.
_FREE = {
    *Asked.model_fields,
    *("cursor", "limit", "offset", "min_seq", "mode", "sort", "group_by", "diversity", "typing"),
    *("fields", "facets", "facet_limit", "facet_mode", "facet_ranges", "facet_under"),
    *("highlight", "explain"),
}


class CursorPage(NamedTuple):
    """The page that a cursor asks for.

    Attributes:
        model: Version of the cursor; of the first page the model of the request.
        now: The origin "now" of boosts, the same for all pages, in seconds since 1970.
        search: Fingerprint of the search.
    """

    model: str
    after: After
    now: float
    search: str


def page_of_cursor(
    asked: SearchRequest, cursors: Cursors, serving: Serving, now: float
) -> CursorPage:
    """Read the cursor of a request.

    Raises:
        Invalid: this service has not written it, it belongs to another search, or the request has another order.
        CursorExpired: its version is not loaded any more.
    """
    others = {
        "offset": asked.offset > 0,
        "sort": bool(asked.sort),
        "group_by": asked.group_by is not None,
        "diversity": asked.diversity > 0,
        "mode": asked.mode == "fast",
    }
    errors = [
        {"field": name, "reason": "cannot be given with a cursor"}
        for name, is_given in others.items()
        if is_given
    ]
    if not asked.limit:
        errors.append({"field": "limit", "reason": "must be at least 1 with a cursor"})
    if errors:
        raise Invalid(errors=errors)
    assert asked.cursor is not None
    search = fingerprint(asked.model_dump(exclude=_FREE))
    if asked.cursor == FIRST:
        return CursorPage(asked.model, After(), now, search)
    cursor = cursors.read(asked.cursor)
    if cursor.search != search:
        same = ", ".join(sorted(SearchRequest.model_fields.keys() - _FREE))
        reason = f"belongs to another search; these must be the same on all pages: {same}"
        raise Invalid(errors=[{"field": "cursor", "reason": reason}])
    if cursor.version not in serving.models:
        raise CursorExpired
    return CursorPage(cursor.version, cursor.after, cursor.now, search)


ANSWER_HEADERS: dict[str, Any] = {
    "X-Model-Version": {"description": "version that answered", "schema": {"type": "string"}},
    "X-Model-Generation": {
        "description": "generation that answered",
        "schema": {"type": "integer"},
    },
}


@dataclass(frozen=True, slots=True)
class Searches:
    """What routes that rank use. Without events `record` is None, and nothing is tried."""

    settings: Settings
    documents: Documents
    ranker: Ranker
    cursors: Cursors
    trying: Trying
    rules: Callable[[str, str], Sequence[Rule]]
    record: Callable[[Shown], None] | None


def reply_to(
    searches: Searches,
    serving: RequestModel,
    view: View,
    request: RankRequest,
    asker: Asked,
    ranked: Ranked,
    started: float,
    kind: str,
    *,
    page_url: str | None = None,
    ads: Sequence[tuple[int, str, float]] = (),
    **content: Any,
) -> dict[str, Any]:
    """Record an answer whose hits are final, and write its reply with further content; started: time.perf_counter."""
    query_id = new_id()
    if searches.record is not None:
        served = ServedList(
            query_id,
            time.time(),
            request.text,
            [hit["id"] for hit in ranked.hits],
            kind,
            request.offset,
            view.bundle.version,
            serving.generation,
            *ranked.tried,
            ranked.pinned,
            filter=request.asked.filter,
            page_url=page_url,
            model_id=view.bundle.manifest.model_id if ads else "",
            ads=ads,
            typing=getattr(asker, "typing", False),
        )
        searches.record(Shown(served, asker, serving.headers))
    return {
        "query_id": query_id,
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - started) * 1000, 3),
        "certified": ranked.certified,
        "reordered": ranked.reordered,
        "covered": ranked.covered,
        "candidate": ranked.tried.candidate,
        **content,
    }


def list_content(
    ranked: Ranked, rules: Sequence[Rule] = (), did_you_mean: str | None = None
) -> dict[str, Any]:
    """Return the fields of a reply with one list of hits."""
    return {
        "total": ranked.total if ranked.is_total else None,
        "total_at_least": None if ranked.is_total else ranked.total,
        "hits": ranked.hits,
        "facets": ranked.facets,
        "cursor": None,
        "facet_ranges": ranked.facet_ranges,
        "rules": [rule.id for rule in rules],
        "did_you_mean": did_you_mean,
    }


SearchesDep = Annotated[Searches, part("search")]
router = APIRouter(prefix="/v1", tags=["search"], route_class=RankingRoute)


_RESPONSES = {200: {"headers": ANSWER_HEADERS}, **problems(400, 404, 410, 413, 415, 422, 503)}
_LINK_RESPONSES = {200: {"headers": ANSWER_HEADERS}, **problems(404, 422, 503)}


async def _search(
    asked: SearchRequest, serving: RequestModel, searches: Searches, max_bytes: int
) -> JsonResponse:
    started, now = time.perf_counter(), time.time()
    if asked.is_listing or not asked.limit:
        asked = asked.model_copy(update={"record": False})
    page, after, model = None, None, asked.model
    if asked.cursor is not None:
        page = page_of_cursor(asked, searches.cursors, serving.serving, now)
        model, after, now, _ = page
    view = await searches.documents.view(serving.resolve(model), asked.min_seq)
    request = RankRequest(
        asked,
        max(1, asked.limit),
        asked.offset if after is None else after.place,
        after=after,
        ordering=asked.ordering(now),
        key_filter=serving.filter,
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

    facets, ranges = dict.fromkeys(asked.facets), dict.fromkeys(asked.facet_ranges)
    if asked.filter and asked.facet_mode == "disjunctive":
        parse_filter(asked.filter, request.filter_path)  # without() reads valid filters only
        filters = {name: without(asked.filter, name) for name in facets | ranges}
        request.counted = {name for name, others in filters.items() if others == asked.filter}
        for name, others in filters.items():
            if name in request.counted:
                continue
            if serving.slot is not None:
                serving.slot.set_cost(serving.slot.cost + 1)
            alone = _count_of(name, others, request)
            rank_plainly = partial(searches.ranker.rank, view)
            found = await rank_by_rules(rules, view, alone, searches.ranker, rank_plainly)
            facets |= found.facets
            ranges |= found.facet_ranges
    ranked = await rank_by_rules(rules, view, request, searches.ranker, rank)
    ranked.facets, ranked.facet_ranges = facets | ranked.facets, ranges | ranked.facet_ranges

    def best() -> dict[str, Any]:
        hits = ranked.hits
        return orjson.loads(orjson.dumps(hits[0]["fields"])) if hits else {}

    # A known word may be of documents that the caller's key does not see.
    correction = view.analyzer.correction(asked.query, best) if serving.filter is None else None
    if not asked.limit:
        ranked.hits = []
    content = list_content(ranked, rules, correction)
    reply = reply_to(searches, serving, view, request, asked, ranked, started, "search", **content)
    following = ranked.following
    if page and following and following.place <= searches.settings.max_offset:
        cursor = Cursor(view.bundle.version, page.search, page.now, *following)
        reply["cursor"] = searches.cursors.text(cursor)
    return bounded(reply, max_bytes, "limit")


def _count_of(name: str, condition: Mapping[str, Any], request: RankRequest) -> RankRequest:
    """Return a request that only counts the values and ranges of one field."""
    changed: dict[str, Any] = {
        "filter": condition,
        "fields": [],
        "highlight": None,
        "explain": False,
    }
    asked = request.asked.model_copy(update=changed)
    # Not None, which would put a document that the query names first, and ask for all words.
    ordering = None if request.ordering is None else Ordering()
    return replace(request, asked=asked, limit=1, ordering=ordering, counted={name}, is_part=True)


@router.post(
    "/search",
    response_model=SearchReply,
    responses=_RESPONSES,
    openapi_extra=needs("search", "filter"),
)
async def search(body: SearchRequest, serving: ServingDep, searches: SearchesDep) -> JsonResponse:
    """Rank the documents of a model for a query."""
    check_limits(searches.settings, body)
    return await _search(body, serving, searches, searches.settings.max_answer_bytes)


@router.get(
    "/search",
    response_model=SearchReply,
    responses=_LINK_RESPONSES,
    openapi_extra=needs("search", "filter"),
)
async def search_by_link(
    asked: Annotated[SearchQuery, Query()], serving: ServingDep, searches: SearchesDep
) -> JsonResponse:
    """Rank the documents of a model for a query, for links and browsers; the reply is that of a POST."""
    check_limits(searches.settings, asked)
    given = asked.model_dump(exclude={"q", "filter", "highlight"})
    condition = None if asked.filter is None else parse_text(asked.filter, "filter")
    if not isinstance(condition, dict | None):
        raise FilterError("filter", "a filter must be an object")
    if asked.highlight:
        given["highlight"] = {"fields": asked.highlight}
    body = SearchRequest.model_validate({**given, "query": asked.q, "filter": condition})
    return await _search(body, serving, searches, searches.settings.max_answer_bytes)


@router.post(
    "/search:batch",
    response_model=BatchReply,
    responses=problems(400, 404, 410, 413, 415, 422, 503),
    openapi_extra=needs("search", "filter"),
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
    openapi_extra=needs("search", "filter"),
)
async def similar_documents(
    id: PathId, asked: Annotated[SimilarQuery, Query()], serving: ServingDep, searches: SearchesDep
) -> JsonResponse:
    """Rank the other documents of a model for one of its documents as the query."""
    started = time.perf_counter()
    check_limits(searches.settings, asked)
    view = await searches.documents.view(serving.resolve(asked.model), asked.min_seq)
    fields = (await searches.documents.stored(view, id, serving.filter)).fields
    if fields is None:
        raise DocumentNotFound(f"The model {view.bundle.version} has no document {id!r}.")
    condition = None if asked.filter is None else parse_text(asked.filter, "filter")
    request = RankRequest(
        SearchRequest.model_construct(
            query=view.model.query_text(fields), fields=asked.fields, filter=condition,
            mode=asked.mode, match="any", prefix="none",
        ),
        asked.limit,
        asked.offset,
        exclude=[id],
        is_document=True,
        key_filter=serving.filter,
        max_bytes=searches.settings.max_answer_bytes,
    )  # fmt: skip
    ranked = await searches.ranker.rank(view, request)
    content = list_content(ranked)
    reply = reply_to(searches, serving, view, request, asked, ranked, started, "similar", **content)
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
