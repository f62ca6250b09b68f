"""PUT, DELETE and GET /v1/documents/{id}, and POST /v1/documents:bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from fullrank.errors import DocumentRefused
from service import errors
from service.documents import idempotency, reading
from service.documents.follow import Followed
from service.documents.log import Submission, Write
from service.documents.reading import Line, Unfit
from service.edge.body import must_be_json
from service.edge.guard import Guarded, needs
from service.http.deps import PathId, Services, ServicesDep, ServingDep
from service.http.responses import Answer
from service.http.schemas import DocumentQuery, DocumentReply, WriteQuery, WriteReply
from service.routes.documented import problems

NDJSON = "application/x-ndjson"
router = APIRouter(prefix="/v1", tags=["documents"], route_class=Guarded)

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]+$",
        description="a request sent again with its key is kept once and answered alike, for a day",
    ),
]


BULK = "/documents:bulk"


def _body(media_type: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    content = {media_type: {"schema": schema}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


_TEXT = {"type": ["string", "null"]}
_DOCUMENT = {
    "type": "object",
    "properties": {"title": _TEXT, "text": _TEXT},
    "propertyNames": {"pattern": "^(?!_)"},
    "additionalProperties": {"$ref": "#/components/schemas/FieldValue"},
    "examples": [{"title": "scp"}],
}
_LINES = {
    "examples": ['{"_id": "a", "title": "scp"}\n{"_id": "b", "_delete": true}\n'],
}

_VERDICTS = {
    "type": "string",
    "description": "each line an object: line (from 1), id (null where none could be read), status (200 or 422), "
    "and seq or error",
    "examples": ['{"line":1,"id":"a","status":200,"seq":17}\n'],
}


@router.api_route(
    "/documents/{id:path}/similar",
    methods=["PUT", "DELETE"],
    include_in_schema=False,
    openapi_extra=needs("ingest"),
)
async def no_document() -> Response:
    """The path means what is like a document, not one; of an id that ends so the bulk request takes care."""
    raise errors.MethodNotAllowed


@router.put(
    "/documents/{id:path}",
    response_model=WriteReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
    openapi_extra={
        **needs("ingest"),
        **_body("application/json", _DOCUMENT, "the fields of the document"),
    },
)
async def put(
    id: PathId,
    asked: Annotated[WriteQuery, Query()],
    request: Request,
    serving: ServingDep,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add a document, or replace it. The answer comes when it is safe on disk.

    It is visible in every worker within a second; `min_seq` of a search waits for it.
    """
    must_be_json(request.scope["headers"])
    body = await request.body()
    cap = services.settings.max_document_bytes
    if len(body) > cap:
        raise errors.TooLarge(f"A document may have at most {cap} bytes.")
    views = _views(services, serving.resolve(asked.model).name)
    try:
        write = reading.read_document(id, body, cap)
        _check(views, write)
    except Unfit as error:
        raise _invalid(error) from None
    except DocumentRefused as error:
        return await _single(services, views, write, idempotency_key, body, _not_taken(error))
    return await _single(services, views, write, idempotency_key, body)


@router.delete(
    "/documents/{id:path}",
    response_model=WriteReply,
    responses=problems(404, 409, 422, 503, 507),
    openapi_extra=needs("ingest"),
)
async def delete(
    id: PathId,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Delete a document, one of the bundle's too. To delete what is not there is no error."""
    views = _views(services, serving.resolve(asked.model).name)
    try:
        reading.check_id(id)
    except Unfit as error:
        raise _invalid(error) from None
    return await _single(services, views, Write(id, None), idempotency_key, b"")


@router.post(
    BULK,
    response_class=Response,
    responses={
        200: {
            "description": "One verdict for each line, in order, as NDJSON",
            "content": {NDJSON: {"schema": _VERDICTS}},
        },
        **problems(400, 404, 409, 413, 415, 422, 503, 507),
    },
    openapi_extra={
        **needs("ingest"),
        **_body(NDJSON, _LINES, "a document with its `_id` in each line, or `_id` and `_delete`"),
    },
)
async def bulk(
    asked: Annotated[WriteQuery, Query()],
    request: Request,
    serving: ServingDep,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add, replace and delete many documents. Lines that are fine are kept, all of them or (on an error) none."""
    _must_be_lines(request)
    body = await request.body()
    settings = services.settings
    if body.count(b"\n") + (not body.endswith(b"\n")) > settings.max_bulk_lines:
        raise errors.TooLarge(f"A request may have at most {settings.max_bulk_lines} lines.")
    views = _views(services, serving.resolve(asked.model).name)

    def read() -> list[Line]:
        return [
            _checked(views, line) for line in reading.read_lines(body, settings.max_document_bytes)
        ]

    # Some milliseconds of work: the loop answers others meanwhile.
    lines = await asyncio.to_thread(read)
    writes = [line.write for line in lines if line.write is not None]
    kept = await _kept(
        services,
        views,
        writes,
        lambda first: _verdicts(lines, first),
        idempotency_key,
        (b"bulk", b"", body),
        NDJSON,
    )
    return kept or Response(_verdicts(lines, 0), media_type=NDJSON)


@router.get(
    "/documents/{id:path}",
    response_model=DocumentReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search"),
)
async def get(
    id: PathId,
    asked: Annotated[DocumentQuery, Query()],
    serving: ServingDep,
    services: ServicesDep,
) -> Answer:
    """One document as a model has it now."""
    view = await services.live.view(serving.resolve(asked.model), asked.min_seq)
    try:
        fields = view.fields(id)
    except KeyError:
        raise errors.DocumentNotFound(f"{view.bundle.version} has no such document.") from None
    return Answer(
        {
            "id": id,
            "model": view.bundle.version,
            "generation": serving.generation,
            "fields": fields,
        }
    )


def _must_be_lines(request: Request) -> None:
    given = request.headers.get("content-type", "").lower().replace(" ", "").replace('"', "")
    if given not in (NDJSON, f"{NDJSON};charset=utf-8"):
        raise errors.UnsupportedMedia(f"Send lines of JSON in UTF-8 as Content-Type: {NDJSON}.")


def _views(services: Services, name: str) -> Sequence[Followed]:
    """The views of a collection: each must take what is written."""
    views = services.live.views(name)
    if not views:
        raise errors.NotReady(f"No version of {name} is loaded.")
    return views


def _check(views: Sequence[Followed], write: Write) -> None:
    """Raises DocumentRefused where a loaded model takes no such document."""
    fields = orjson.loads(write.fields or b"{}")
    for followed in views:
        followed.view.check(write.id, fields)


def _checked(views: Sequence[Followed], line: Line) -> Line:
    """The line, or why its document is not taken. Raises NotTaken where a model takes none at all."""
    if line.write is None or line.write.fields is None:
        return line
    try:
        _check(views, line.write)
    except DocumentRefused as error:
        if any(followed.view.bundle.live_model is None for followed in views):
            raise _not_taken(error) from None  # no other line would fare better
        return Line(line.number, line.id, None, Unfit("", str(error)))
    return line


def _not_taken(error: DocumentRefused) -> errors.NotTaken:
    return errors.NotTaken(f"{error}.")


def _invalid(error: Unfit) -> errors.Invalid:
    field = f"body.{error.field}" if error.field not in ("", reading.ID) else error.field or "body"
    return errors.Invalid(errors=[{"field": field, "reason": error.reason}])


async def _single(
    services: Services,
    views: Sequence[Followed],
    write: Write,
    key: str | None,
    body: bytes,
    refusal: errors.Problem | None = None,
) -> Response:
    """The answer to one write. Raises the refusal, unless it was kept before there was one."""
    name = views[0].view.bundle.name

    def render(first: int) -> bytes:
        return orjson.dumps({"id": write.id, "collection": name, "seq": first})

    kind = b"delete" if write.fields is None else b"put"
    writes = [write] if refusal is None else []
    told_by = (kind, write.id.encode(), body)
    kept = await _kept(services, views, writes, render, key, told_by, "application/json")
    if kept is None:
        assert refusal is not None
        raise refusal
    return kept


async def _kept(
    services: Services,
    views: Sequence[Followed],
    writes: Sequence[Write],
    render: Callable[[int], bytes],
    key: str | None,
    told_by: tuple[bytes, bytes, bytes],
    media_type: str,
) -> Response | None:
    """The answer to writes that are kept; None where there are none, and no answer was kept under the key.

    told_by  the deed, the document and the body: what tells a request from others
    """
    if not writes and key is None:
        return None
    name = views[0].view.bundle.name
    kind, id, body = told_by
    digest = b"" if key is None else idempotency.digest(kind, name.encode(), id, body)
    # What a version that is loaded holds itself waits for no compaction.
    after = max(followed.since for followed in views)
    kept = await services.live.write(Submission(name, writes, render, key, digest, after))
    if not writes and not kept.again:
        return None
    headers = {"X-Seq": str(kept.seq)}
    if kept.again:
        headers["Idempotent-Replayed"] = "true"
    return Response(kept.answer, headers=headers, media_type=media_type)


def _verdicts(lines: Sequence[Line], first: int) -> bytes:
    """One JSON object a line; the writes have the numbers from first on."""
    seq, verdicts = first, []
    for line in lines:
        verdict: dict[str, Any] = {"line": line.number, "id": line.id}
        if line.error is None:
            verdict |= {"status": 200, "seq": seq}
            seq += 1
        else:
            verdict |= {"status": 422, "error": str(line.error)}
        verdicts.append(orjson.dumps(verdict, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(verdicts)
