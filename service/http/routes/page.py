"""The search page: three files read once, with their hash as the entity tag."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
}


def page_router() -> APIRouter:
    """Routes over the page's files as they are on disk now."""
    router = APIRouter(include_in_schema=False)
    for path, (name, media_type) in _FILES.items():
        content = files("service").joinpath("page", name).read_bytes()
        router.add_api_route(path, _file(content, media_type), methods=["GET", "HEAD"])
    return router


def _file(content: bytes, media_type: str) -> Callable[[str | None], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": media_type}

    async def serve(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(content, headers=headers)

    return serve
