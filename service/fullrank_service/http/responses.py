"""JSON responses, written by orjson."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from fullrank_service.search.request import too_large


class JsonResponse(Response):
    """A JSON response. Raises TypeError for values that JSON cannot hold, lone surrogates included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def bounded(content: Any, max_bytes: int, field: str) -> JsonResponse:
    """Write an answer. Raises FilterError, naming the field that asks for so much, if it is too large."""
    response = JsonResponse(content)
    if len(response.body) > max_bytes:
        raise too_large(field)
    return response
