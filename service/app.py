"""The app, put together from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from fullrank import __version__
from service import errors
from service.caching.bitmaps import Bitmaps
from service.direct import Before
from service.documents.live import LiveDocuments
from service.documents.log import FILE, Caps
from service.edge.access import Access
from service.edge.admission import Admission, Rates
from service.edge.drain import drain_first
from service.edge.middleware import Edge
from service.edge.protocol import KEY, Limits
from service.http.deps import Services
from service.http.routes import documents, health, models, search
from service.http.routes.page import page_router
from service.models.registry import Registry
from service.openapi import document
from service.pace import Pace
from service.search.caching.cache import EmbeddingCache, Remote
from service.search.ranker import Ranker
from service.settings import Settings
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import OFF, Tracing


class App(FastAPI):
    """FastAPI inside of what stands before it: a request meets the edge first, then the direct routes.

    A middleware of FastAPI's would come too late for them.
    """

    edge: ASGIApp

    def build_middleware_stack(self) -> ASGIApp:
        """Without the outermost layer: it would answer a defect in plain text before the edge hears of it."""
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.edge(scope, receive, send)


def create_app(settings: Settings | None = None) -> FastAPI:
    """A new app; settings None reads them from the environment.

    Models are loaded when the lifespan starts: a worker takes no request before it is done.
    """
    settings = settings if settings is not None else Settings()
    metrics = Metrics(settings.metrics_folder)
    tracing = Tracing() if settings.tracing else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Limits]]:
        services = _build(settings, metrics, Access.of(settings), tracing)
        app.state.services = services
        services.live.start()
        drain_first(services.admission, settings.drain_ms / 1000)
        await services.registry.start()
        try:
            yield {KEY: _limits(settings, services)}
        finally:
            await services.ranker.close()
            await services.registry.close()
            await services.live.close()
            metrics.close()
            if tracing is not None:
                tracing.close()

    # The interactive documentation loads scripts from elsewhere; the document itself stays.
    app = App(
        title="Fullrank",
        version=__version__,
        description="Learned and exact matching in one score.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if settings.docs else None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=OFF if tracing is None else tracing.framework,
    )
    inside: ASGIApp = super(App, app).__call__
    # The span of a request is the framework's: where spans are asked for it answers all of them.
    app.edge = Edge(
        Before(inside, search.router) if tracing is None else inside,
        metrics=metrics,
        max_body_bytes=settings.max_body_bytes,
        larger={f"/v1{documents.BULK}": settings.max_bulk_bytes},
        log_requests=settings.log_requests,
    )
    errors.install(app)
    # Before the documents: an id may hold slashes, and so what stands behind it.
    app.include_router(search.router)
    app.include_router(documents.router)
    app.include_router(models.router)
    app.include_router(health.router)
    app.include_router(page_router())
    app.openapi = partial(document, app, settings)  # type: ignore[method-assign]
    return app


def _build(
    settings: Settings, metrics: Metrics, access: Access, tracing: Tracing | None
) -> Services:
    live = LiveDocuments(
        settings.documents or settings.bundles / FILE,
        Caps(settings.max_live_documents, settings.max_live_mb << 20),
        metrics,
        poll_s=settings.documents_poll_ms / 1000,
        wait_s=settings.min_seq_wait_ms / 1000,
    )
    registry = Registry(
        settings.bundles,
        metrics,
        default_model=settings.default_model,
        preload=settings.preload,
        max_loaded=settings.max_loaded,
        poll_s=settings.poll_ms / 1000,
        timeout_s=settings.swap_timeout_s,
        prepare=live.prepare,
        release=live.release,
    )
    cache = EmbeddingCache(
        settings.cache_entries,
        metrics,
        _remote(settings, metrics),
        max_bytes=settings.cache_mb << 20,
    )
    ranker = Ranker(
        cache,
        metrics,
        Bitmaps(settings.filter_cache_mb << 20),
        Pace(settings.exact_budget_ms / 1000, settings.inline_ms / 1000),
        threads=settings.rank_threads,
        searched=tracing.search if tracing is not None else None,
    )
    admission = Admission(
        settings.max_queue,
        settings.deadline_ms / 1000,
        # Enough that no thread is without work between one request and the next.
        settings.rank_threads + 2,
        metrics.queue.set,
    )
    rates = Rates(settings.rate_limit, settings.rate_burst)
    return Services(settings, metrics, registry, ranker, access, admission, rates, live)


def _limits(settings: Settings, services: Services) -> Limits:
    return Limits(
        services.admission,
        head_s=settings.head_timeout_s,
        body_s=settings.body_timeout_s,
        answer_s=settings.answer_timeout_s,
        keep_alive_s=settings.keep_alive_s,
        max_connections=settings.max_connections,
        counted=services.metrics.refused,
    )


def _remote(settings: Settings, metrics: Metrics) -> Remote | None:
    if settings.redis_url is None:
        return None
    from service.search.caching.redis_cache import (
        RedisCache,  # only who configures Redis pays for its import
    )

    return RedisCache(
        settings.redis_url.get_secret_value(),
        metrics,
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.redis_timeout_ms / 1000,
        retry_s=settings.redis_retry_ms / 1000,
        gain=settings.redis_gain,
    )
