"""Serve the files of the search page, with their hash as the entity tag."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@cache
def page_router() -> APIRouter:
    """Build one route for each file of the page, read once a process; `index.html` is at `/` and `/console`."""
    router = APIRouter(include_in_schema=False)
    for file in files("fullrank_service").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(PurePath(file.name).suffix)
        if media_type is None:
            continue
        serve = _serve(file.read_bytes(), media_type)
        for path in ("/", "/console") if file.name == "index.html" else (f"/{file.name}",):
            router.add_api_route(path, serve, methods=["GET", "HEAD"])
    return router


def _serve(content: bytes, media_type: str) -> Callable[[str | None], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": media_type}

    async def serve(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(content, headers=headers)

    return serve
