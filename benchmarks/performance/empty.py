"""A FastAPI app with an empty route: the cost of HTTP in Python without a search.

    ANSWERS=FILE FULLRANK_PORT=8000 python -m benchmarks.performance.empty

FILE has answers of the real service, {"headers": {…}, "bodies": […]} as JSON, which are returned in turn. Framework,
server and settings are those of the service.
"""

from __future__ import annotations

import json
import os
from itertools import cycle
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response

from fullrank_service.base.settings import Settings
from fullrank_service.process.run import run


def create_app() -> FastAPI:
    """Answer POST /v1/search with the next stored body."""
    kept = json.loads(Path(os.environ["ANSWERS"]).read_text("utf-8"))
    headers: dict[str, str] = kept["headers"]
    bodies = cycle([body.encode() for body in kept["bodies"]])
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/search")
    async def search() -> Response:
        return Response(next(bodies), headers=headers)

    @app.get("/livez")
    async def livez() -> Response:
        return Response()

    return app


if __name__ == "__main__":
    run("benchmarks.performance.empty:create_app", Settings())
