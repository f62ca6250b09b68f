"""Write, delete and read live documents: /v1/documents/{id} and /v1/documents:bulk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any
from weakref import WeakValueDictionary

import orjson
from fastapi import APIRouter, Header, Query, Request
from starlette.datastructures import State
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fullrank.bundle import Bundle
from fullrank.errors import DocumentRefused
from fullrank.live import View
from fullrank.live.entry import NewFields
from fullrank.replies import WriteReply
from fullrank_service.base import errors
from fullrank_service.documents import reading
from fullrank_service.documents.follow import Followed
from fullrank_service.documents.live import Documents, DocumentsDep
from fullrank_service.documents.log import Changed, Submission, Write, request_digest
from fullrank_service.documents.reading import InvalidDocument, Line
from fullrank_service.http.deps import (
    Capability,
    PathId,
    ServingDep,
    Shared,
    SharedDep,
    check_path,
    serving_of,
)
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse, bounded
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import MinSeq, WriteQuery
from fullrank_service.http.strict import Reply, require_json

# Writes of documents: what the loaded models accept goes into the log.


def loaded_views(documents: Documents, name: str) -> Sequence[Followed]:
    """The views of a collection's loaded versions. Each must accept a document that is written."""
    views = documents.views(name)
    if not views:
        raise errors.NotReady(f"No version of {name} is loaded.")
    return views


def accepted(views: Sequence[Followed], write: Write, fields: dict[str, Any]) -> Write:
    """Return a write of a document that was read strictly, with the memory that it takes. Raises DocumentRefused."""
    for followed in views:
        followed.view.check(write.id, fields, is_storable=True)
    return write._replace(memory=max(followed.view.memory_of(fields) for followed in views))


def not_accepted(error: DocumentRefused) -> errors.DocumentNotAccepted:
    return errors.DocumentNotAccepted(f"{error}.")


def checked_line(views: Sequence[Followed], line: Line, new: Sequence[NewFields]) -> Line:
    """Return the line, with an error if a model does not accept its document.

    Args:
        new: of each view, the fields that earlier lines brought in.

    Raises:
        DocumentNotAccepted: a model accepts no documents at all.
    """
    if line.fields is None or line.write is None:
        return line
    try:
        write = accepted(views, line.write, line.fields)
        for fields in new:
            fields.add(line.fields)
    except DocumentRefused as error:
        if any(followed.view.bundle.live_model is None for followed in views):
            raise not_accepted(error) from None  # it would refuse every line
        return Line(line.number, line.id, None, InvalidDocument("", str(error)))
    return line._replace(write=write)


async def write_one(
    documents: Documents,
    views: Sequence[Followed],
    write: Write,
    key: str | None,
    body: bytes,
    refusal: errors.Problem | None = None,
    kind: bytes | None = None,
    unchanged_since: int | None = None,
) -> Response:
    """Answer one write. Raise the refusal, unless the same request succeeded earlier. Raises Changed."""
    name = views[0].view.bundle.name

    def render(first: int) -> bytes:
        return orjson.dumps({"id": write.id, "collection": name, "seq": first})

    kind = kind or (b"delete" if write.fields is None else b"put")
    writes = [write] if refusal is None else []
    identity = (kind, write.id.encode(), body)
    response = await write_all(
        documents, views, writes, render, key, identity, "application/json", unchanged_since
    )
    if response is None:
        assert refusal is not None
        raise refusal
    return response


async def write_all(
    documents: Documents,
    views: Sequence[Followed],
    writes: Sequence[Write],
    render: Callable[[int], bytes],
    key: str | None,
    identity: tuple[bytes, bytes, bytes],
    media_type: str,
    unchanged_since: int | None = None,
) -> Response | None:
    """Write to the log and answer; None if there is nothing to write and no earlier answer under the key.

    Args:
        render: writes the answer, given the sequence number of the first write.
        identity: the operation, the document id and the body, which distinguish a request from others with its key.
    """
    if not writes and key is None:
        return None
    name = views[0].view.bundle.name
    kind, id, body = identity
    digest = b"" if key is None else request_digest(kind, name.encode(), id, body)
    # Operations that every loaded version already contains do not count as waiting for compaction.
    after = max(followed.since for followed in views)
    since = unchanged_since if writes else None
    # Collections may be of different tenants, who must not use up each other's keys.
    own = None if key is None else f"{name} {key}"
    submission = Submission(name, writes, render, own, digest, after, since)
    kept = await documents.write(submission)
    if not writes and not kept.again:
        return None
    headers = {"X-Seq": str(kept.seq)}
    if kept.again:
        headers["Idempotent-Replayed"] = "true"
    return Response(kept.answer, headers=headers, media_type=media_type)


NDJSON = "application/x-ndjson"
_KEY_HEADER = b"idempotency-key"
# Others may write the same document between its reading and its writing so many times.
_MOST_MERGES = 16
# Documents that are changed now.
_patched: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


class WriteRoute(GuardedRoute):
    """A route of single writes: without a query string and a key it passes by FastAPI's dependencies."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_simple = scope["method"] in (self.methods or ()) and not scope.get("query_string")
        if not is_simple or any(name == _KEY_HEADER for name, _ in scope["headers"]):
            await super().handle(scope, receive, send)
            return
        state = scope["app"].state
        shared: Shared = state.shared
        documents: Documents = state.documents
        self.permit(scope)
        request = Request(scope, receive, send)
        check_path(scope)
        serving = serving_of(scope)
        id = scope["path_params"]["id"]
        if scope["method"] == "PUT":
            response = await put_document(id, _PLAIN, request, serving, shared, documents)
        else:
            response = await delete_document(id, _PLAIN, serving, documents)
        await response(scope, receive, send)


class DocumentQuery(WriteQuery):
    """The query string of reading a document."""

    min_seq: MinSeq = 0


class DocumentReply(Reply):
    id: str
    model: str
    generation: int
    fields: dict[str, Any]


_PLAIN = WriteQuery()
router = APIRouter(prefix="/v1", tags=["documents"], route_class=GuardedRoute)
writes = APIRouter(prefix="/v1", tags=["documents"], route_class=WriteRoute)

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]+$",
        description="a retry with the same key within a day is written once and gets the same answer",
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
_PATCH = {**_DOCUMENT, "examples": [{"price": 12.5, "brand": None}]}
_LINES = {
    "type": "string",
    "format": "binary",
    "examples": ['{"_id": "a", "title": "scp"}\n{"_id": "b", "_delete": true}\n'],
}

_VERDICTS = {
    "type": "string",
    "description": "one object a line: line (from 1), id (null if it could not be read), status (200 or 422), "
    "and seq or error",
    "examples": ['{"line":1,"id":"a","status":200,"seq":17}\n'],
}


@router.api_route(
    "/documents/{id:path}/together",
    methods=["PUT", "PATCH", "DELETE"],
    include_in_schema=False,
    openapi_extra=needs("ingest", "collections"),
)
@router.api_route(
    "/documents/{id:path}/similar",
    methods=["PUT", "PATCH", "DELETE"],
    include_in_schema=False,
    openapi_extra=needs("ingest", "collections"),
)
async def refuse_write() -> Response:
    """Refuse to write at these paths: they mean documents that belong to one. Bulk requests take ids that end so."""
    raise errors.MethodNotAllowed


@writes.put(
    "/documents/{id:path}",
    response_model=WriteReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
    openapi_extra={
        **needs("ingest", "collections"),
        **_body("application/json", _DOCUMENT, "the fields of the document"),
    },
)
async def put_document(
    id: PathId,
    asked: Annotated[WriteQuery, Query()],
    request: Request,
    serving: ServingDep,
    shared: SharedDep,
    documents: DocumentsDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add or replace a document. The answer comes after it is synced to disk.

    Every worker can find it within a second; a search with `min_seq` waits for it.
    """
    body = await _object_of(request, shared.settings.max_document_bytes)
    views = loaded_views(documents, serving.resolve(asked.model).name)
    try:
        write, fields = reading.read_document(id, body, shared.settings.max_document_bytes)
        write = accepted(views, write, fields)
    except DocumentRefused as error:
        return await write_one(documents, views, write, idempotency_key, body, not_accepted(error))
    return await write_one(documents, views, write, idempotency_key, body)


@writes.delete(
    "/documents/{id:path}",
    response_model=WriteReply,
    responses=problems(404, 409, 422, 503, 507),
    openapi_extra=needs("ingest", "collections"),
)
async def delete_document(
    id: PathId,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    documents: DocumentsDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Delete a document, also one of the bundle. Deleting a document that does not exist succeeds."""
    views = loaded_views(documents, serving.resolve(asked.model).name)
    reading.check_id(id)
    return await write_one(documents, views, Write(id, None), idempotency_key, b"")


router.routes += writes.routes


@router.patch(
    "/documents/{id:path}",
    response_model=WriteReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
    openapi_extra={
        **needs("ingest", "collections"),
        **_body("application/json", _PATCH, "the fields to set; null removes a field"),
    },
)
async def patch_document(
    id: PathId,
    asked: Annotated[WriteQuery, Query()],
    request: Request,
    serving: ServingDep,
    shared: SharedDep,
    documents: DocumentsDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Set and remove fields of a document; the others stay. The answer comes after the document is synced to disk.

    Of changes that are made at once none is lost: each is merged into the document that the one before it left.
    """
    max_bytes = shared.settings.max_document_bytes
    body = await _object_of(request, max_bytes)
    bundle = serving.resolve(asked.model)
    views = loaded_views(documents, bundle.name)
    patch = reading.read_patch(id, body, max_bytes)
    key = (bundle.name, id)
    # One after another in this worker, so that few changes have to be merged again.
    async with _patched.setdefault(key, asyncio.Lock()):
        return await _merge(documents, max_bytes, bundle, views, id, patch, idempotency_key, body)


async def _object_of(request: Request, max_bytes: int) -> bytes:
    require_json(request.scope["headers"])
    body = await request.body()
    if len(body) > max_bytes:
        raise errors.TooLarge(f"The body is larger than {max_bytes} bytes.")
    return body


async def _merge(
    documents: Documents,
    max_bytes: int,
    bundle: Bundle,
    views: Sequence[Followed],
    id: str,
    patch: Mapping[str, Any],
    key: str | None,
    body: bytes,
) -> Response:
    seq = 0
    for _ in range(_MOST_MERGES):
        view = await documents.view(bundle, seq)
        found = await documents.stored(view, id)
        refusal: errors.Problem | None = None
        write = Write(id, b"")
        try:
            if found.fields is None:
                raise _not_found(view, id)
            write, fields = reading.merged(id, found.fields, patch)
            write = accepted(views, write, fields)
            if len(write.fields or b"") > max_bytes:
                raise errors.TooLarge(f"The document would be larger than {max_bytes} bytes.")
        except errors.Problem as error:
            refusal = error
        except DocumentRefused as error:
            refusal = not_accepted(error)
        if refusal is not None and not seq:
            # The document may have been written before this request, and not be visible here yet.
            seq = await documents.head(bundle.name)
            if seq > found.seq:
                continue
        try:
            return await write_one(documents, views, write, key, body, refusal, b"patch", found.seq)
        except Changed as changed:
            seq = changed.seq
    raise errors.Overloaded("The document changes too often; try again shortly.")


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
        **needs("ingest", "collections"),
        **_body(NDJSON, _LINES, "a document with its `_id` in each line, or `_id` and `_delete`"),
    },
)
async def write_documents(
    asked: Annotated[WriteQuery, Query()],
    request: Request,
    serving: ServingDep,
    shared: SharedDep,
    documents: DocumentsDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add, replace and delete many documents. Valid lines are written together: all of them or, on an error, none."""
    _require_lines(request)
    body = await request.body()
    settings = shared.settings
    if body.count(b"\n") + (not body.endswith(b"\n")) > settings.max_bulk_lines:
        raise errors.TooLarge(f"The request has more than {settings.max_bulk_lines} lines.")
    views = loaded_views(documents, serving.resolve(asked.model).name)

    def read() -> list[Line]:
        lines = reading.read_lines(body, settings.max_document_bytes)
        new = [followed.view.new_fields() for followed in views]
        return [checked_line(views, line, new) for line in lines]

    # Reading takes milliseconds. A thread does it, so that the event loop can answer others.
    lines = await asyncio.to_thread(read)
    writes = [line.write for line in lines if line.write is not None]
    response = await write_all(
        documents,
        views,
        writes,
        lambda first: _verdicts(lines, first),
        idempotency_key,
        (b"bulk", b"", body),
        NDJSON,
    )
    return response or Response(_verdicts(lines, 0), media_type=NDJSON)


@router.get(
    "/documents/{id:path}",
    response_model=DocumentReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("search", "filter"),
)
async def get_document(
    id: PathId,
    asked: Annotated[DocumentQuery, Query()],
    serving: ServingDep,
    shared: SharedDep,
    documents: DocumentsDep,
) -> JsonResponse:
    """Read a document as a model holds it now."""
    view = await documents.view(serving.resolve(asked.model), asked.min_seq)
    fields = (await documents.stored(view, id, serving.filter)).fields
    if fields is None:
        raise _not_found(view, id)
    content = {
        "id": id,
        "model": view.bundle.version,
        "generation": serving.generation,
        "fields": fields,
    }
    return bounded(content, shared.settings.max_answer_bytes, "id")


def _not_found(view: View, id: str) -> errors.DocumentNotFound:
    return errors.DocumentNotFound(f"The model {view.bundle.version} has no document {id!r}.")


def _require_lines(request: Request) -> None:
    given = request.headers.get("content-type", "").lower().replace(" ", "").replace('"', "")
    if given not in (NDJSON, f"{NDJSON};charset=utf-8"):
        raise errors.UnsupportedMedia(
            f"Send one JSON object a line, in UTF-8, with `Content-Type: {NDJSON}`."
        )


def _verdicts(lines: Sequence[Line], first: int) -> bytes:
    seq, verdicts = first, []
    for line in lines:
        head = b'{"line":%d,"id":%b,' % (line.number, orjson.dumps(line.id))
        if line.error is None:
            verdicts.append(b'%b"status":200,"seq":%d}\n' % (head, seq))
            seq += 1
        else:
            error = orjson.dumps(str(line.error))
            verdicts.append(b'%b"status":422,"error":%b}\n' % (head, error))
    return b"".join(verdicts)


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Documents]:
    documents: Documents = state.backend.documents
    documents.start()
    try:
        yield documents
    finally:
        await documents.close()


DOCUMENTS = Capability("documents", router.routes, _opened)
