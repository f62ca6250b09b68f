"""JSON answers through orjson."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


class Answer(Response):
    """A JSON answer. Raises TypeError for what JSON cannot hold, lone surrogates included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)
