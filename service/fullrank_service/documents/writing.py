"""Writes of documents: what the loaded models accept goes into the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from fullrank.errors import DocumentRefused
from fullrank.live.entry import NewFields
from fullrank_service.base import errors
from fullrank_service.documents import idempotency
from fullrank_service.documents.follow import Followed
from fullrank_service.documents.live import Documents
from fullrank_service.documents.log import Submission, Write
from fullrank_service.documents.reading import InvalidDocument, Line
from fullrank_service.http.schemas import ID


def loaded_views(documents: Documents, name: str) -> Sequence[Followed]:
    """The views of a collection's loaded versions. Each must accept a document that is written."""
    views = documents.views(name)
    if not views:
        raise errors.NotReady(f"No version of {name} is loaded.")
    return views


def accepted(views: Sequence[Followed], write: Write, fields: dict[str, Any]) -> Write:
    """Return a write of a document that was read strictly, with the memory that it takes.

    Raises:
        DocumentRefused: a loaded model does not accept the document.
    """
    for followed in views:
        followed.view.check(write.id, fields, is_storable=True)
    return write._replace(memory=max(followed.view.memory_of(fields) for followed in views))


def not_accepted(error: DocumentRefused) -> errors.DocumentNotAccepted:
    return errors.DocumentNotAccepted(f"{error}.")


def checked_line(views: Sequence[Followed], line: Line, new: Sequence[NewFields]) -> Line:
    """Give the line, with an error if a model does not accept its document.

    Args:
        views: of the loaded models.
        line: read.
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


def invalid(error: InvalidDocument) -> errors.Invalid:
    field = f"body.{error.field}" if error.field not in ("", ID) else error.field or "body"
    return errors.Invalid(errors=[{"field": field, "reason": error.reason}])


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
    """Answer one write. Raise the refusal, unless the same request succeeded earlier.

    Raises:
        Changed: the document was written after ``unchanged_since``.
    """
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
    """Write to the log and answer.

    Args:
        render: writes the answer, given the sequence number of the first write.
        key: the idempotency key, if the request has one.
        identity: the operation, the document id and the body, which distinguish a request from others with its key.

    Returns:
        None if there is nothing to write and no earlier answer under the key.
    """
    if not writes and key is None:
        return None
    name = views[0].view.bundle.name
    kind, id, body = identity
    digest = b"" if key is None else idempotency.digest(kind, name.encode(), id, body)
    # Operations that every loaded version already contains do not count as waiting for compaction.
    after = max(followed.since for followed in views)
    since = unchanged_since if writes else None
    submission = Submission(name, writes, render, key, digest, after, since)
    kept = await documents.write(submission)
    if not writes and not kept.again:
        return None
    headers = {"X-Seq": str(kept.seq)}
    if kept.again:
        headers["Idempotent-Replayed"] = "true"
    return Response(kept.answer, headers=headers, media_type=media_type)
