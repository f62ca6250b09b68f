"""Build the app from its capabilities."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from logging import getLogger

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.types import ASGIApp

from fullrank import __version__
from fullrank_service.ads.routes import ADS
from fullrank_service.backend import MakeBackend, local_backend
from fullrank_service.base.logs import RequestLog
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.base.tracing import OFF, Tracing
from fullrank_service.completion.routes import COMPLETION
from fullrank_service.documents.routes import BULK, DOCUMENTS
from fullrank_service.events.routes import EVENTS, MAX_BODY_BYTES, PATHS
from fullrank_service.experiments.routes import EXPERIMENTS
from fullrank_service.http.access import Access
from fullrank_service.http.admission import Admission, RateLimiter
from fullrank_service.http.deps import Capability, Drain, Shared, drain_before_stop
from fullrank_service.http.guard import ranking_routes
from fullrank_service.http.middleware import (
    CollectionMiddleware,
    CorsMiddleware,
    DirectRouteMiddleware,
    OriginCheck,
    OverloadMiddleware,
    RequestMiddleware,
    TransferLimits,
)
from fullrank_service.http.openapi import document
from fullrank_service.http.page import page_router
from fullrank_service.models.registry import Models
from fullrank_service.models.routes import MODELS
from fullrank_service.rules.routes import RULES
from fullrank_service.search.routes import SEARCH

# How long the parts may take to close after the last answer, seconds. A supervisor waits a little longer.
_CLOSE_S = 4.0
_LAG_PAUSE_S = 1.0
_log = getLogger(__name__)

App = FastAPI
"""What ``create_app`` returns."""


def capabilities(settings: Settings) -> list[Capability]:
    """Return the parts of an app in the order in which they open.

    Each may read the state of those before it: SEARCH that of RULES, ADS that of SEARCH and COMPLETION.
    Documents come last: /documents/{id}/similar would match as a document whose id contains a slash.
    """
    with_events = [EVENTS, EXPERIMENTS] if settings.events else []
    return [*with_events, RULES, COMPLETION, SEARCH, ADS, DOCUMENTS, MODELS]


def create_app(
    settings: Settings | None = None, make_backend: MakeBackend = local_backend
) -> FastAPI:
    """Create an app. Its lifespan starts by loading the models, so a worker accepts no request before that.

    Args:
        settings: None reads them from the environment.
        make_backend: makes what the app answers from, when the app starts.

    Raises:
        KeysError: the key file is damaged.
        AdError: the taxonomy of ads is damaged.
    """
    settings = settings if settings is not None else Settings()
    metrics = Metrics()
    log = RequestLog(is_full=settings.log_requests)
    tracing = Tracing() if settings.tracing else None
    parts = capabilities(settings)
    routes = [route for one in parts for route in one.routes]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        state = app.state
        access = Access.from_settings(settings)
        state.backend, state.tracing = make_backend(settings, metrics), tracing
        state.shared = _shared(settings, metrics, access, state.backend.models)
        watching = asyncio.create_task(_measure_lag(metrics))
        drain_before_stop(state.shared.drain, settings.drain_ms / 1000)
        opened: dict[str, AbstractAsyncContextManager[object]] = {}
        try:
            for one in parts:
                context = one.opened(state)
                setattr(state, one.name, await context.__aenter__())
                opened[one.name] = context
            yield
        finally:
            watching.cancel()
            await _close(opened, tracing)

    app = _Application(
        title="Fullrank",
        version=__version__,
        description="Learned and exact matching in one score.",
        # The interactive documentation loads scripts from other hosts, which the safety headers forbid.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if settings.docs else None,
        redirect_slashes=False,
        lifespan=lifespan,
        routes=[*routes, *page_router().routes],
        telemetry=OFF if tracing is None else tracing.framework,
    )
    ranking = ranking_routes(routes)
    if tracing is None:  # the router names the route of a span
        app.add_middleware(DirectRouteMiddleware, routes=ranking)
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        log=log,
        limits=TransferLimits(settings.body_timeout_s, settings.response_timeout_s),
        origins=OriginCheck(settings.allowed_hosts, settings.cors_origins),
        max_body_bytes=settings.max_body_bytes,
        max_body_bytes_of={
            f"/v1{BULK}": settings.max_bulk_bytes,
            **dict.fromkeys(PATHS, MAX_BODY_BYTES),
        },
    )
    # Added last, so it is the outermost.
    app.add_middleware(OverloadMiddleware, paths=ranking, metrics=metrics, log=log)
    if settings.cors_origins is not None:
        public = [route for one in (SEARCH, COMPLETION, ADS, EVENTS) for route in one.public]
        app.add_middleware(CorsMiddleware, origins=settings.cors_origins, routes=public)
    app.add_middleware(CollectionMiddleware)
    app.openapi = partial(document, app, settings)  # type: ignore[method-assign]
    return app


def _shared(settings: Settings, metrics: Metrics, access: Access, models: Models) -> Shared:
    return Shared(
        settings,
        metrics,
        access,
        Admission(
            settings.max_queue,
            settings.deadline_ms / 1000,
            # Two more than there are threads, so that a thread has work while a request is being answered.
            settings.rank_threads + 2,
            metrics.queue.set,
        ),
        RateLimiter(settings.rate_limit, settings.rate_burst),
        RateLimiter(per_second=2, burst=30),
        Drain(),
        lambda: models.serving,
    )


async def _measure_lag(metrics: Metrics) -> None:
    while True:
        due = time.monotonic() + _LAG_PAUSE_S
        await asyncio.sleep(_LAG_PAUSE_S)
        metrics.loop_lag.observe(max(0.0, time.monotonic() - due))


async def _close(
    opened: Mapping[str, AbstractAsyncContextManager[object]], tracing: Tracing | None
) -> None:
    """Close all parts at the same time; leave those that take too long to the end of the process."""
    parts = {name: context.__aexit__(None, None, None) for name, context in opened.items()}
    if tracing is not None:
        parts["tracing"] = asyncio.to_thread(tracing.close)
    closing = [asyncio.ensure_future(part) for part in parts.values()]
    if not closing:  # the first part did not open
        return
    _, left = await asyncio.wait(closing, timeout=_CLOSE_S)
    for name, task in zip(parts, closing, strict=True):
        if task in left:
            _log.warning("%s: not closed within %g s", name, _CLOSE_S)
        elif error := task.exception():
            _log.error("%s: closing failed", name, exc_info=error)


class _Application(FastAPI):
    """FastAPI without its middlewares for errors: RequestMiddleware answers every error."""

    def build_middleware_stack(self) -> ASGIApp:
        # FastAPI's own routes expect this one.
        app: ASGIApp = AsyncExitStackMiddleware(self.router)
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


if __name__ == "__main__":  # prints docs/openapi.json
    written = create_app(Settings.defaults()).openapi()
    json.dump(written, sys.stdout, indent=1, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")
