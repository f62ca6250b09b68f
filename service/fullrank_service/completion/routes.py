"""What other people asked and clicked: /v1/complete and /v1/documents/{id}/together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.datastructures import State

from fullrank.events.together import MAX_KEPT
from fullrank.replies import CompletionReply, TogetherHit
from fullrank_service.completion.usage import Usage
from fullrank_service.documents.live import DocumentsDep
from fullrank_service.documents.reading import check_id
from fullrank_service.http.deps import Capability, PathId, ServingDep, SharedDep, part
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse, too_large
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import MAX_FIELDS, MinSeq, ModelName
from fullrank_service.http.strict import FieldName, QueryString, Reply, longest

UsageDep = Annotated[Usage, part("completion")]
router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)

MAX_COMPLETIONS = 50
MAX_PREFIX_CHARS = 256


class CompleteQuery(QueryString):
    """The query string of /complete."""

    prefix: Annotated[
        str,
        Field(min_length=1, max_length=MAX_PREFIX_CHARS, examples=["cop"]),
        longest(MAX_PREFIX_CHARS),
    ]
    limit: Annotated[int, Field(ge=1, le=MAX_COMPLETIONS)] = 8
    model: ModelName = "default"


class TogetherQuery(QueryString):
    """The query string of /together."""

    limit: Annotated[int, Field(ge=1, le=MAX_KEPT)] = 10
    fields: list[FieldName] | None = Field(default=None, max_length=MAX_FIELDS)
    model: ModelName = "default"
    min_seq: MinSeq = 0


class CompleteReply(Reply):
    model: str
    generation: int
    completions: list[CompletionReply] = Field(description="the best first")


class TogetherReply(Reply):
    model: str
    generation: int
    hits: list[TogetherHit] = Field(description="the largest lift first")


@router.get(
    "/complete",
    response_model=CompleteReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search", "filter"),
)
async def complete(
    asked: Annotated[CompleteQuery, Query()], serving: ServingDep, usage: UsageDep
) -> JsonResponse:
    """Complete what a person is typing; a key with a filter gets nothing."""
    bundle = serving.resolve(asked.model)
    # Queries, titles and words are of all documents, also of those that the caller's key does not see.
    found = usage.complete(bundle, asked.prefix, asked.limit) if serving.filter is None else []
    return JsonResponse(
        {
            "model": bundle.version,
            "generation": serving.generation,
            "completions": [{"text": one.text, "kind": one.kind.name.lower()} for one in found],
        }
    )


@router.get(
    "/documents/{id:path}/together",
    response_model=TogetherReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search", "filter"),
)
async def documents_together(
    id: PathId,
    asked: Annotated[TogetherQuery, Query()],
    serving: ServingDep,
    shared: SharedDep,
    documents: DocumentsDep,
    usage: UsageDep,
) -> JsonResponse:
    """List the documents that the same people clicked in one session; a key with a filter gets none."""
    check_id(id)
    view = await documents.view(serving.resolve(asked.model), asked.min_seq)
    hits: list[orjson.Fragment] = []
    left = shared.settings.max_answer_bytes
    for found in usage.together(view.bundle.name, id) if serving.filter is None else ():
        if len(hits) == asked.limit:
            break
        fields = (await documents.stored(view, found.document)).fields
        if fields is None:
            continue
        if asked.fields is not None:
            fields = {name: value for name, value in fields.items() if name in asked.fields}
        hit = {"id": found.document, "lift": found.lift, "people": found.people, "fields": fields}
        written = orjson.dumps(hit)
        left -= len(written)
        if left < 0:
            raise too_large("limit")
        hits.append(orjson.Fragment(written))
    content = {"model": view.bundle.version, "generation": serving.generation}
    return JsonResponse({**content, "hits": hits})


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Usage]:
    documents, recorder = state.backend.documents, getattr(state, "events", None)
    usage = Usage(
        lambda: [followed.view for followed in documents.views()],
        None if recorder is None else recorder.folder,
        state.shared.settings.usage_refresh_s,
        state.shared.metrics,
    )
    usage.start()
    try:
        yield usage
    finally:
        await usage.close()


COMPLETION = Capability("completion", router.routes, _opened, router.routes)
