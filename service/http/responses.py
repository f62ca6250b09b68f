"""JSON responses, written by orjson."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


class JsonResponse(Response):
    """A JSON response. Raises TypeError for values that JSON cannot hold, lone surrogates included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)
