"""What other people asked and clicked: /v1/complete and /v1/documents/{id}/together."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query

from fullrank_service.base.errors import Invalid
from fullrank_service.documents.reading import ID, InvalidDocument, check_id
from fullrank_service.events.schemas import (
    CompleteQuery,
    CompleteReply,
    TogetherQuery,
    TogetherReply,
)
from fullrank_service.http.deps import PathId, ServicesDep, ServingDep
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.search.request import too_large

router = APIRouter(prefix="/v1", tags=["search"], route_class=GuardedRoute)


@router.get(
    "/complete",
    response_model=CompleteReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search"),
)
async def complete(
    asked: Annotated[CompleteQuery, Query()], serving: ServingDep, services: ServicesDep
) -> JsonResponse:
    """Complete what a person is typing."""
    bundle = serving.resolve(asked.model)
    found = services.usage.complete(bundle, asked.prefix, asked.limit)
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
    openapi_extra=needs("search"),
)
async def documents_together(
    id: PathId,
    asked: Annotated[TogetherQuery, Query()],
    serving: ServingDep,
    services: ServicesDep,
) -> JsonResponse:
    """List the documents that the same people clicked in one session; none for an unknown document."""
    try:
        check_id(id)
    except InvalidDocument as error:
        raise Invalid(errors=[{"field": ID, "reason": error.reason}]) from None
    view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    hits: list[orjson.Fragment] = []
    left = services.settings.max_answer_bytes
    for found in services.usage.together(view.bundle.name, id):
        if len(hits) == asked.limit:
            break
        fields = (await services.live.stored(view, found.document)).fields
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
