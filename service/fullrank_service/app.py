"""Build the app from its parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from logging import getLogger

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.types import ASGIApp

from fullrank import __version__
from fullrank.events.log import places
from fullrank_service.ads import routes as pages
from fullrank_service.ads.matching import AdServices
from fullrank_service.backend import MakeBackend, local_backend
from fullrank_service.base.logs import RequestLog
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.base.tracing import OFF, Tracing
from fullrank_service.completion import routes as usage
from fullrank_service.completion.usage import Usage
from fullrank_service.documents import routes as documents
from fullrank_service.documents.sqlitelog import FILE
from fullrank_service.events import routes as events
from fullrank_service.events.recorder import Recorder
from fullrank_service.experiments import routes as experiments
from fullrank_service.experiments.status import Reports
from fullrank_service.http.access import Access
from fullrank_service.http.admission import Admission, RateLimiter
from fullrank_service.http.cors import CorsMiddleware, OriginCheck
from fullrank_service.http.deps import Services
from fullrank_service.http.drain import Drain, drain_before_stop
from fullrank_service.http.guard import ranking_routes
from fullrank_service.http.middleware import RequestMiddleware, TransferLimits
from fullrank_service.http.openapi import document
from fullrank_service.http.overload import DirectRouteMiddleware, OverloadMiddleware
from fullrank_service.models import health
from fullrank_service.models import routes as models
from fullrank_service.models.health import page_router
from fullrank_service.rules import routes as rules
from fullrank_service.rules.rules import FILE as RULES
from fullrank_service.rules.rules import Rules
from fullrank_service.search import routes as search
from fullrank_service.search.cache import EmbeddingCache, Remote
from fullrank_service.search.paging import Cursors
from fullrank_service.search.ranker import Ranker
from fullrank_service.search.trying import Trying

# How long the parts may take to close after the last answer, seconds. A supervisor waits a little longer.
_CLOSE_S = 4.0
_LAG_PAUSE_S = 1.0
_log = getLogger(__name__)

App = FastAPI
"""What ``create_app`` returns."""


def create_app(
    settings: Settings | None = None, make_backend: MakeBackend = local_backend
) -> FastAPI:
    """Create an app.

    The lifespan starts by loading the models, so a worker accepts no request before that.

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

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        access = Access.from_settings(settings)
        services = _build(settings, metrics, access, tracing, make_backend)
        app.state.services = services
        services.live.start()
        services.rules.start()
        services.usage.start()
        if services.events is not None:
            services.events.start()
        watching = asyncio.create_task(_measure_lag(metrics))
        drain_before_stop(services.drain, settings.drain_ms / 1000)
        await services.registry.start()
        try:
            yield
        finally:
            watching.cancel()
            await _close(services, tracing)

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
        # These two come first: /documents/{id}/similar would match as a document whose id contains a slash.
        routes=[
            *search.router.routes,
            *usage.router.routes,
            *(events.routes() if settings.events else ()),
            *pages.router.routes,
            *documents.router.routes,
            *rules.router.routes,
            *models.router.routes,
            *(experiments.router.routes if settings.events else ()),
            *health.router.routes,
            *page_router().routes,
        ],
        telemetry=OFF if tracing is None else tracing.framework,
    )
    ranking = ranking_routes(search.router)
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
            f"/v1{documents.BULK}": settings.max_bulk_bytes,
            **dict.fromkeys(events.PATHS, events.MAX_BODY_BYTES),
        },
    )
    # Added last, so it is the outermost.
    app.add_middleware(OverloadMiddleware, paths=ranking, metrics=metrics, log=log)
    if settings.cors_origins is not None:
        routes = [*search.router.routes, *usage.router.routes, *events.reporting_routes()]
        app.add_middleware(CorsMiddleware, origins=settings.cors_origins, routes=routes)
    app.openapi = partial(document, app, settings)  # type: ignore[method-assign]
    return app


async def _measure_lag(metrics: Metrics) -> None:
    """Measure once a second how late the event loop runs."""
    while True:
        due = time.monotonic() + _LAG_PAUSE_S
        await asyncio.sleep(_LAG_PAUSE_S)
        metrics.loop_lag.observe(max(0.0, time.monotonic() - due))


async def _close(services: Services, tracing: Tracing | None) -> None:
    """Close all parts at the same time; leave those that take too long to the end of the process."""
    parts = {
        "ranker": services.ranker.close(),
        "usage": services.usage.close(),
        "models": services.registry.close(),
        "documents": services.live.close(),
        "pages": services.ads.pages.close(),
        "rules": services.rules.close(),
    }
    if services.events is not None:
        parts["events"] = services.events.close()
    if tracing is not None:
        parts["tracing"] = asyncio.to_thread(tracing.close)
    closing = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    ended, left = await asyncio.wait(closing, timeout=_CLOSE_S)
    for task in ended:
        if error := task.exception():
            _log.error("%s: closing failed", task.get_name(), exc_info=error)
    for task in left:
        _log.warning("%s: not closed within %g s", task.get_name(), _CLOSE_S)


class _Application(FastAPI):
    """FastAPI without its middlewares for errors: RequestMiddleware answers every error."""

    def build_middleware_stack(self) -> ASGIApp:
        # FastAPI's own routes expect this one.
        app: ASGIApp = AsyncExitStackMiddleware(self.router)
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


def _build(
    settings: Settings,
    metrics: Metrics,
    access: Access,
    tracing: Tracing | None,
    make_backend: MakeBackend,
) -> Services:
    backend = make_backend(settings, metrics)
    live, log = backend.documents, settings.documents or settings.bundles / FILE
    cache = EmbeddingCache(
        settings.cache_entries,
        metrics,
        _remote(settings, metrics),
        max_bytes=settings.cache_mb << 20,
    )
    ranker = Ranker(
        cache,
        metrics,
        backend.engine,
        searched=tracing.search if tracing is not None else None,
    )
    admission = Admission(
        settings.max_queue,
        settings.deadline_ms / 1000,
        # Two more than there are threads, so that a thread has work while a request is being answered.
        settings.rank_threads + 2,
        metrics.queue.set,
    )
    recorder = Recorder.from_settings(settings, metrics) if settings.events else None
    return Services(
        settings,
        metrics,
        backend.models,
        ranker,
        access,
        admission,
        RateLimiter(settings.rate_limit, settings.rate_burst),
        live,
        Drain(),
        recorder,
        Trying(ranker, live, settings.explore),
        Cursors(
            places(
                settings.bundles, settings.documents, settings.events_folder, settings.events_key
            )[1]
        ),
        None if recorder is None else Reports(settings.bundles, recorder.folder),
        Rules(
            log.with_name(RULES),
            poll_s=settings.documents_poll_ms / 1000,
            failed=metrics.background_failed,
        ),
        Usage(
            lambda: [followed.view for followed in live.views()],
            None if recorder is None else recorder.folder,
            settings.usage_refresh_s,
            metrics,
        ),
        AdServices.from_settings(settings, log),
    )


def _remote(settings: Settings, metrics: Metrics) -> Remote | None:
    if settings.redis_url is None:
        return None
    from fullrank_service.search.redis_cache import RedisCache

    return RedisCache(
        settings.redis_url.get_secret_value(),
        metrics,
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.redis_timeout_ms / 1000,
        retry_s=settings.redis_retry_ms / 1000,
        min_chars=settings.redis_min_chars,
    )
